-- held: the ledger of a semaphore: who has how many permits, and until when.

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local CHUNK = 1000

-- What holders that are gone had comes back: those of one chunk, and of up to
-- nine more while fewer than `need` are free. free: how many are, false if
-- nobody knows; then the ledger is void. Gives how many are free now, and how
-- many came back.
local function reclaim(count, ledger, free, need)
    if not free then
        redis.call('del', ledger)
        return false, 0
    end
    local back = 0
    for _ = 1, 10 do
        local over = redis.call('zrangebyscore', ledger, '-inf', now, 'limit',
                                0, CHUNK)
        for _, entry in ipairs(over) do
            back = back + (tonumber(entry:match('^(%d+):')) or 0)
        end
        if #over > 0 then
            redis.call('zrem', ledger, unpack(over))
        end
        if #over < CHUNK or free + back >= need then
            break
        end
    end
    if back > 0 then
        free = redis.call('incrby', count, ('%.0f'):format(back))
    end
    return free, back
end

-- ms until the first holder's lease ends; -1 if there is none.
local function first_end(ledger)
    local first = redis.call('zrange', ledger, 0, 0, 'withscores')
    return first[1] and math.max(math.ceil(tonumber(first[2]) - now), 0) or -1
end
