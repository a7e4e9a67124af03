-- semaphore_force: releases all permits of one acquire.
--
-- KEYS  1 number of free permits   2 ledger: permits:owner, scored by the
--       end of the lease
-- ARGV  1 owner   2 channel   then the publish commands (none: 'publish')
-- Returns SCRIPT_ENDED; 0 if the ledger has no such owner.
--
-- Also rolls back an acquire that was granted too late. Searches the whole
-- ledger, which is short; the call is rare.
local count, ledger = KEYS[1], KEYS[2]
local owner = ':' .. ARGV[1]
local PUBLISH_ARGS = 3
--@include publish
--@include notify_free
--@include parse_int

local free = redis.call('get', count)
if not free then
    redis.call('del', ledger) -- of a deleted semaphore
    return 0
elseif not parse_int(free) then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
for first = 0, redis.call('zcard', ledger), 1000 do
    local page = redis.call('zrange', ledger, first, first + 999)
    for _, entry in ipairs(page) do
        local permits, entry_owner = entry:match('^(%d+)(:.*)$')
        if entry_owner == owner then
            redis.call('zrem', ledger, entry)
            free = redis.call('incrby', count, permits)
            notify_free(ARGV[2], free, tonumber(permits))
            return SCRIPT_ENDED
        end
    end
end
return 0
