-- semaphore_force: give back what one acquire took, however many that are.
--
-- KEYS  1 number of free permits   2 the ledger: permits:owner, by the end of the
--       lease
-- ARGV  1 owner   2 channel, then the commands to publish with; none = 'publish'
-- Gives 1 when it gave back something, 0 when the ledger has no such owner.
--
-- Used to take back what was granted too late. It looks through the whole ledger,
-- which is not long, and is seldom done.
local count, ledger = KEYS[1], KEYS[2]
local owner = ':' .. ARGV[1]
local PUBLISH_ARGS = 3
--@include publish
--@include notify_free
--@include parse_int

local free = redis.call('get', count)
if not free then
    redis.call('del', ledger) -- it was deleted, and nothing is given back
    return 0
elseif not parse_int(free) then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
for first = 0, redis.call('zcard', ledger), 1000 do
    local some = redis.call('zrange', ledger, first, first + 999)
    for _, entry in ipairs(some) do
        local many, who = entry:match('^(%d+)(:.*)$')
        if who == owner then
            redis.call('zrem', ledger, entry)
            free = redis.call('incrby', count, many)
            notify_free(ARGV[2], free, tonumber(many))
            return 1
        end
    end
end
return 0
