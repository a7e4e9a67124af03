-- semaphore_add: make permits, or take some away.
--
-- KEYS  1 number of free permits   2 guard of this request
-- ARGV  1 how many, below zero to take away   2 channel, then the commands to
--       publish with; none = 'publish'
-- Gives how many are free then, as text; an error when the key holds no number,
--       or would hold one of more than 32 bits.
--
-- Twice is harmless: the guard has the answer. The number may go below zero:
-- those who have permits keep them, and nobody gets one until enough came back.
-- With none to make it only tells what is free: for waiters of other clients
-- that missed a message, and do not look by themselves.
local count, guard = KEYS[1], KEYS[2]
local more = tonumber(ARGV[1])
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
    local sum = (parse_int(free) or 0) + more
    if sum > 2147483647 or sum < -2147483648 then
        return nil, redis.error_reply(
            'ERR a number of permits must have 32 bits at most')
    end
    local done = more ~= 0 and redis.pcall('incrby', count, ARGV[1])
    if type(done) == 'table' then
        return nil, done
    end
    if more >= 0 then
        notify_free(ARGV[2], sum, more)
    end
    return ('%.0f'):format(sum)
end)
