-- slot_permits: expiry of the permits of a slots lock.
--
-- Requires now. Provides NEVER, CHUNK, end_of(id, score), reclaim(permits).

local ID_MARK = '\209\181\1' -- prefix of the permit ids of this library
local NEVER = 922337203685477 -- the end of a permit that does not expire
local CHUNK = 1000

-- Other clients set the end of their permits by their own clocks: such a permit
-- ends a second later.
local function end_of(id, score)
    return tonumber(score) + (id:sub(1, 3) == ID_MARK and 0 or 1000)
end

-- Removes up to CHUNK expired permits. Returns how many.
local function reclaim(permits)
    local all = redis.call('zrangebyscore', permits, 0, now, 'withscores',
                           'limit', 0, CHUNK)
    local expired = {}
    for i = 1, #all, 2 do
        if end_of(all[i], all[i + 1]) <= now then
            expired[#expired + 1] = all[i]
        end
    end
    return #expired > 0 and redis.call('zrem', permits, unpack(expired)) or 0
end
