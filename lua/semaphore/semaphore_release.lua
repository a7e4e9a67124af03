-- semaphore_release: releases some or all permits of one acquire.
--
-- KEYS  1 number of free permits   2 ledger: permits:owner, scored by the
--       end of the lease
-- ARGV  1 owner   2 permits it has   3 permits it keeps   4 channel   then the
--       publish commands (none: 'publish')
-- Returns if all are released SCRIPT_FREED plus the number of receivers (a
--       hint); SCRIPT_LEVEL_RELEASED if it keeps some; SCRIPT_NOT_HELD if the
--       ledger has no such entry, or the semaphore was deleted.
--
-- Idempotent: the ledger shows whether it was done. Without an entry no permit
-- is released, so none is created. A deleted semaphore is not recreated, and
-- its ledger is void. Works at maxmemory once the ZREM has been executed.
local count, ledger = KEYS[1], KEYS[2]
local owner, has, keeps = ARGV[1], ARGV[2], ARGV[3]
local released = tonumber(has) - tonumber(keeps)
local PUBLISH_ARGS = 5
--@include publish
--@include notify_free
--@include parse_int

local free = redis.call('get', count)
if not free then
    redis.call('del', ledger)
    return SCRIPT_NOT_HELD
elseif not parse_int(free) then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
local ends = redis.call('zscore', ledger, has .. ':' .. owner)
if not ends then
    local was_done = keeps ~= '0' and
        redis.call('zscore', ledger, keeps .. ':' .. owner)
    return was_done and SCRIPT_LEVEL_RELEASED or SCRIPT_NOT_HELD
end
redis.call('zrem', ledger, has .. ':' .. owner)
if keeps ~= '0' then
    redis.call('zadd', ledger, ends, keeps .. ':' .. owner)
end
free = redis.call('incrby', count, ('%.0f'):format(released))
local receivers = notify_free(ARGV[4], free, released)
return keeps == '0' and SCRIPT_FREED + receivers or SCRIPT_LEVEL_RELEASED
