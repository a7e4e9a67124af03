-- latch_down: counts down by one; at zero the latch opens.
--
-- KEYS  1 count   2 notes
-- ARGV  1 ticket (idempotency token)   2 '1' if the ticket is a name, which is
--       valid again once the latch is set anew   3 channel   then the publish
--       commands (none: 'publish')
-- Returns the remaining count; an error if the key holds no number.
--
-- Idempotent: a ticket counts once. Works at maxmemory: Redis checks for OOM
-- only before a script's first write, so the script first issues a no-op HDEL.
-- A new ticket for a latch that is open publishes once more: waiters of other
-- clients that missed the message do not poll.
local latch, notes = KEYS[1], KEYS[2]
local ticket = (ARGV[2] == '1' and 'n:' or 'c:') .. ARGV[1]
local PUBLISH_ARGS = 4
--@include publish
--@include parse_int
--@include latch

local count = redis.call('get', latch)
if not count then
    if redis.call('hexists', notes, ticket) == 0 then
        publish(ARGV[3], '0')
    end
    return 0
elseif not parse_int(count) then
    return redis.error_reply('WRONGTYPE the key holds no count')
end
local left = parse_int(count)
local noted = redis.call('hmget', notes, ticket, '#')
local generation = noted[2] or '0'
redis.pcall('hdel', notes, '')
if left > 0 and noted[1] and (ARGV[2] ~= '1' or noted[1] == generation) then
    return left
end
redis.call('hset', notes, ticket, generation)
if left > 1 then
    redis.call('decr', latch)
    if redis.call('pttl', notes) < WEEK then
        redis.call('pexpire', notes, WEEK)
    end
    return left - 1
end
open_latch(latch, notes, ARGV[3])
return 0
