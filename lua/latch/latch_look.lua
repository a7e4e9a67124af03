-- latch_look: is the latch open?
--
-- KEYS  1 count   2 notes
-- ARGV  1 channel, then the commands to publish with; none = 'publish'
-- Gives an array: what is left, 0 when open; ms until it opens by itself, -1
--       never; 1 if its deadline has passed, else 0. An error when the key holds
--       no number.
--
-- A latch that opens by itself tells nobody. So the first who finds out tells
-- those who cannot know of a deadline. One that others opened in time is not
-- taken for one whose deadline has passed, once somebody has looked.
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
local due = redis.call('hget', notes, '!')
if not due or count then
    return {0, -1, 0}
elseif due == 'past' then
    return {0, -1, 1}
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now < tonumber(due) then
    redis.pcall('hdel', notes, '!')
    return {0, -1, 0}
end
redis.pcall('hdel', notes, '') -- a full server lets the rest pass then
redis.pcall('hset', notes, '!', 'past')
publish(ARGV[1], '0')
return {0, -1, 1}
