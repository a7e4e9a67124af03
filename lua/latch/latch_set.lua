-- latch_set: closes a latch that is open, or opens one that is closed.
--
-- KEYS  1 count   2 notes
-- ARGV  1 the count, '0' to open it   2 deadline: ms until it opens by itself,
--       '0' = never   3 request (idempotency token)   4 channel   then the
--       publish commands (none: 'publish')
-- Returns an array: 1 if this request did it, 0 if it was closed (open)
--       already; the count. An error if the key holds no number.
--
-- Idempotent: the notes keep the request. Other clients leave a count of zero
-- or less, which means open.
local latch, notes = KEYS[1], KEYS[2]
local wanted, deadline_ms = ARGV[1], tonumber(ARGV[2])
local request = 's:' .. ARGV[3]
local PUBLISH_ARGS = 5
--@include publish
--@include parse_int
--@include latch

local count = redis.call('get', latch)
if count and not parse_int(count) then
    return redis.error_reply('WRONGTYPE the key holds no count')
end
local left = math.max(parse_int(count) or 0, 0)
if redis.call('hexists', notes, request) == 1 then
    return {1, left}
elseif wanted == '0' then
    if not count then
        publish(ARGV[4], '0') -- for waiters that missed the message
        return {0, 0}
    end
    redis.pcall('hdel', notes, '') -- a no-op write, see latch_down
    redis.call('hset', notes, request, open_latch(latch, notes, ARGV[4]))
    return {1, 0}
elseif left > 0 then
    return {0, left}
end
redis.call('hset', notes, request, new_generation(notes))
local done
if deadline_ms > 0 then
--@include now
    redis.call('hset', notes, '!', ('%.0f'):format(now + deadline_ms))
    redis.call('pexpire', notes, math.max(deadline_ms + 3600000, WEEK))
    done = redis.pcall('set', latch, wanted, 'px', ARGV[2])
else
    redis.call('hdel', notes, '!')
    done = redis.pcall('set', latch, wanted)
end
if done.err then
    redis.call('hdel', notes, request, '!')
    return done
end
publish(ARGV[4], '1')
return {1, tonumber(wanted)}
