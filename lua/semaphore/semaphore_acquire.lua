-- semaphore_acquire: acquires permits, or returns when the first lease ends.
--
-- KEYS  1 number of free permits   2 ledger: permits:owner, scored by the
--       end of the lease
-- ARGV  1 owner   2 permits wanted   3 lease in ms   4 channel   then the
--       publish commands (none: 'publish')
-- Returns the permits wanted, as a string, if acquired; if busy, ms until the
--       first lease in the ledger ends, SCRIPT_BUSY_NO_TTL if it is empty;
--       SCRIPT_UNSET if the number of permits was never set; SCRIPT_WRONG_TYPE if
--       the key holds no number.
--
-- Idempotent: an entry that is in the ledger is not counted again; each call
-- has its own owner. A success always writes, so that a WAIT after the script
-- covers it.
local count, ledger = KEYS[1], KEYS[2]
local wanted, lease = tonumber(ARGV[2]), tonumber(ARGV[3])
local entry = ARGV[2] .. ':' .. ARGV[1]
local PUBLISH_ARGS = 5
--@include publish
--@include notify_free
--@include parse_int
--@include now
--@include ledger

local free = redis.call('get', count)
if free and not parse_int(free) then
    return SCRIPT_WRONG_TYPE
end
local reclaimed
free, reclaimed = reclaim(count, ledger, parse_int(free) or false, wanted)
if not free then
    return SCRIPT_UNSET
end
local acquired, is_new = false, false
if free >= wanted then
    acquired = true
    is_new = redis.call('zadd', ledger, 'nx', now + lease, entry) == 1
    if is_new then
        free = redis.call('decrby', count, ARGV[2])
    end
elseif redis.call('zscore', ledger, entry) then
    acquired = true
end
if reclaimed > 0 then
    notify_free(ARGV[4], free, reclaimed)
end
if not acquired then
    return first_end(ledger)
end
if not is_new then
    redis.call('zadd', ledger, 'gt', now + lease, entry)
end
local ttl = redis.call('pttl', count)
if ttl > 0 then
    redis.call('pexpire', ledger, ttl)
end
return ARGV[2]
