-- semaphore_set: sets the number of permits, unless it was set before.
--
-- KEYS  1 number of free permits   2 ledger: permits:owner, scored by the
--       end of the lease   3 guard of this request
-- ARGV  1 number of permits   2 channel   then the publish commands (none:
--       'publish')
-- Returns '1' if it was set, '0' if it had been set before; an error if the key
--       holds something else.
--
-- Idempotent: the guard keeps the result. The ledger of a deleted semaphore is
-- void, and deleted.
local count, ledger, guard = KEYS[1], KEYS[2], KEYS[3]
local PUBLISH_ARGS = 3
--@include publish
--@include notify_free
--@include parse_int
--@include run_once

return run_once(guard, function()
    local free = redis.pcall('get', count)
    if type(free) == 'table' then
        return nil, free
    elseif free and not parse_int(free) then
        return nil, redis.error_reply(
            'WRONGTYPE the key holds no number of permits')
    elseif free then
        return '0'
    end
    redis.pcall('del', ledger)
    local done = redis.pcall('set', count, ARGV[1])
    if done.err then
        return nil, done
    end
    notify_free(ARGV[2], tonumber(ARGV[1]), tonumber(ARGV[1]))
    return '1'
end)
