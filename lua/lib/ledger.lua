-- ledger: the acquired permits of a semaphore: entries 'permits:owner', scored
-- by the end of their lease.
--
-- Requires now. Provides reclaim(count, ledger, free, need), first_end(ledger).

local CHUNK = 1000

-- Returns the permits of expired entries: of one chunk, and of up to nine more
-- while fewer than `need` permits are free. free: number of free permits; false
-- if the count does not exist, then the ledger is void and deleted. Returns the
-- number of free permits after that, and how many were reclaimed.
local function reclaim(count, ledger, free, need)
    if not free then
        redis.call('del', ledger)
        return false, 0
    end
    local reclaimed = 0
    for _ = 1, 10 do
        local expired = redis.call('zrangebyscore', ledger, '-inf', now,
                                   'limit', 0, CHUNK)
        for _, entry in ipairs(expired) do
            reclaimed = reclaimed + (tonumber(entry:match('^(%d+):')) or 0)
        end
        if #expired > 0 then
            redis.call('zrem', ledger, unpack(expired))
        end
        if #expired < CHUNK or free + reclaimed >= need then
            break
        end
    end
    if reclaimed > 0 then
        free = redis.call('incrby', count, ('%.0f'):format(reclaimed))
    end
    return free, reclaimed
end

-- Returns the ms until the first lease ends; -1 if the ledger is empty.
local function first_end(ledger)
    local first = redis.call('zrange', ledger, 0, 0, 'withscores')
    return first[1] and math.max(math.ceil(tonumber(first[2]) - now), 0) or -1
end
