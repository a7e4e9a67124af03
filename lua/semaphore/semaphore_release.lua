-- semaphore_release: give back some of the permits of one acquire, or all.
--
-- KEYS  1 number of free permits   2 the ledger: permits:owner, by the end of the
--       lease
-- ARGV  1 owner   2 how many it has   3 how many it will then have   4 channel,
--       then the commands to publish with; none = 'publish'
-- Gives >= 1 when all are given back: 1 + how many heard of it (a hint, no
--       more); 0 when some are left; -1 when the ledger has no such entry, or
--       the semaphore was deleted.
--
-- Twice is harmless: the ledger says whether it was done. What is in nobody's
-- name is not given back, so no permit comes from nothing. A semaphore that was
-- deleted is not made anew, and its ledger is void. Works on a full server, once
-- the entry is out of the ledger.
local count, ledger = KEYS[1], KEYS[2]
local owner, has, rest = ARGV[1], ARGV[2], ARGV[3]
local many = tonumber(has) - tonumber(rest)
local PUBLISH_ARGS = 5
--@include publish
--@include notify_free
--@include parse_int

local free = redis.call('get', count)
if not free then
    redis.call('del', ledger)
    return -1
elseif not parse_int(free) then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
local ends = redis.call('zscore', ledger, has .. ':' .. owner)
if not ends then
    local done = rest ~= '0' and
        redis.call('zscore', ledger, rest .. ':' .. owner)
    return done and 0 or -1
end
redis.call('zrem', ledger, has .. ':' .. owner)
if rest ~= '0' then
    redis.call('zadd', ledger, ends, rest .. ':' .. owner)
end
free = redis.call('incrby', count, ('%.0f'):format(many))
local heard = notify_free(ARGV[4], free, many)
return rest == '0' and 1 + heard or 0
