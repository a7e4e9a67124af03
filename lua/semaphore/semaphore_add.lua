-- semaphore_add: adds permits, or removes some.
--
-- KEYS  1 number of free permits   2 guard of this request
-- ARGV  1 permits to add, negative to remove   2 channel   then the publish
--       commands (none: 'publish')
-- Returns the number of free permits after that, as a string; an error if the
--       key holds no number, or the sum exceeds 32 bits.
--
-- Idempotent: the guard keeps the result. The number may become negative:
-- permits already acquired are not affected, and none is granted until enough
-- are released. Adding 0 only publishes the number, for waiters of other
-- clients that missed a message and do not poll.
local count, guard = KEYS[1], KEYS[2]
local added = tonumber(ARGV[1])
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
    end
    local sum = (parse_int(free) or 0) + added
    if sum > 2147483647 or sum < -2147483648 then
        return nil, redis.error_reply(
            'ERR a number of permits must have 32 bits at most')
    end
    local done = added ~= 0 and redis.pcall('incrby', count, ARGV[1])
    if type(done) == 'table' then
        return nil, done
    end
    if added >= 0 then
        notify_free(ARGV[2], sum, added)
    end
    return ('%.0f'):format(sum)
end)
