-- semaphore_info: how many permits are free, and how many are in the ledger.
--
-- KEYS  1 number of free permits   2 the ledger: permits:owner, by the end of the
--       lease
-- ARGV  1 channel, then the commands to publish with; none = 'publish'
-- Gives an array: 1 if somebody has said how many there are, else 0; how many
--       are free; how many entries the ledger has; ms until the first of them
--       ends, -1 if there is none. An error when the key holds no number.
--
-- What holders that are gone had comes back first, if the caller may do that;
-- the ledger of a semaphore that was deleted is void.
local count, ledger = KEYS[1], KEYS[2]
local PUBLISH_ARGS = 2
--@include publish
--@include notify_free
--@include parse_int
--@include ledger

local free = redis.call('get', count)
if not free then
    redis.pcall('del', ledger)
    return {0, 0, 0, -1}
elseif not parse_int(free) then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
local ended = first_end(ledger) == 0
local back
free = parse_int(free)
if ended then
    free, back = reclaim(count, ledger, free, math.huge)
    notify_free(ARGV[1], back > 0 and free or 0, back)
end
return {1, free, redis.call('zcard', ledger), first_end(ledger)}
