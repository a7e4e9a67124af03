-- latch_look: reads the state of a latch.
--
-- KEYS  1 count   2 notes
-- ARGV  1 channel   then the publish commands (none: 'publish')
-- Returns an array: the count, 0 when open; ms until it opens at its deadline,
--       -1 never; 1 if the deadline opened it, else 0. An error if the key
--       holds no number.
--
-- A latch that opens at its deadline publishes nothing: its key expires. The
-- first client that finds it open publishes for clients that do not know of
-- deadlines. If the latch was opened before its deadline, the first look
-- deletes the deadline, so that it is not reported later.
local latch, notes = KEYS[1], KEYS[2]
local PUBLISH_ARGS = 2
--@include publish
--@include parse_int

local count = redis.call('get', latch)
if count and not parse_int(count) then
    return redis.error_reply('WRONGTYPE the key holds no count')
elseif count and parse_int(count) > 0 then
    return {parse_int(count), redis.call('pttl', latch), 0}
end
local deadline = redis.call('hget', notes, '!')
if not deadline or count then
    return {0, -1, 0}
elseif deadline == 'past' then
    return {0, -1, 1}
end
--@include now
if now < tonumber(deadline) then
    redis.pcall('hdel', notes, '!')
    return {0, -1, 0}
end
redis.pcall('hdel', notes, '') -- a no-op write, see latch_down
redis.pcall('hset', notes, '!', 'past')
publish(ARGV[1], '0')
return {0, -1, 1}
