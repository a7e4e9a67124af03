-- semaphore_set: say how many permits there are, if nobody has.
--
-- KEYS  1 number of free permits   2 the ledger: permits:owner, by the end of the
--       lease   3 guard of this request
-- ARGV  1 how many   2 channel, then the commands to publish with; none =
--       'publish'
-- Gives '1' when it was set, '0' when it was there already; an error when the
--       key is something else.
--
-- Twice is harmless: the guard has the answer. The ledger of a semaphore that was
-- deleted is void.
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
