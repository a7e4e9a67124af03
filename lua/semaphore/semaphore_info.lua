-- semaphore_info: free permits and acquires of a semaphore.
--
-- KEYS  1 number of free permits   2 ledger: permits:owner, scored by the
--       end of the lease
-- ARGV  1 channel   then the publish commands (none: 'publish')
-- Returns an array: 1 if the number of permits was set, else 0; number of free
--       permits; number of ledger entries; ms until the first of them expires,
--       -1 if there is none. An error if the key holds no number.
--
-- Expired entries are reclaimed first. The ledger of a deleted semaphore is
-- void, and deleted if the user may do that.
local count, ledger = KEYS[1], KEYS[2]
local PUBLISH_ARGS = 2
--@include publish
--@include notify_free
--@include parse_int
--@include now
--@include ledger

local free = redis.call('get', count)
if not free then
    redis.pcall('del', ledger)
    return {0, 0, 0, -1}
elseif not parse_int(free) then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
local has_expired = first_end(ledger) == 0
local reclaimed
free = parse_int(free)
if has_expired then
    free, reclaimed = reclaim(count, ledger, free, math.huge)
    notify_free(ARGV[1], reclaimed > 0 and free or 0, reclaimed)
end
return {1, free, redis.call('zcard', ledger), first_end(ledger)}
