-- permits: what the scripts of a slots lock share: permits whose end has come.
--
-- Needs now: the server's time in ms.

local MARK = '\209\181\1' -- how the ids of this library's permits begin
local NEVER = 922337203685477 -- the end of a permit that has none
local CHUNK = 1000

-- Permits of others end by clocks of others: they get a second more.
local function end_of(id, score)
    return tonumber(score) + (id:sub(1, 3) == MARK and 0 or 1000)
end

-- Takes back up to CHUNK permits whose end has come. Gives how many.
local function reclaim(out)
    local all = redis.call('zrangebyscore', out, 0, now, 'withscores',
                           'limit', 0, CHUNK)
    local over = {}
    for i = 1, #all, 2 do
        if end_of(all[i], all[i + 1]) <= now then
            over[#over + 1] = all[i]
        end
    end
    return #over > 0 and redis.call('zrem', out, unpack(over)) or 0
end
