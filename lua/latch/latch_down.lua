-- latch_down: count down by one; at zero the latch opens.
--
-- KEYS  1 count   2 notes
-- ARGV  1 ticket   2 '1' if it is a name, that may be used again when the latch
--       was set anew   3 channel, then the commands to publish with; none =
--       'publish'
-- Gives what is left; an error when the key holds no number.
--
-- Twice is harmless: a ticket counts once. Works on a full server: that lets
-- the rest pass once a script has written; to take out what is not there is
-- enough for that. If it is open already, a new ticket tells so once more:
-- waiters of other clients that missed the message do not look by themselves.
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
local life = noted[2] or '0'
redis.pcall('hdel', notes, '')
if left > 0 and noted[1] and (ARGV[2] ~= '1' or noted[1] == life) then
    return left
end
redis.call('hset', notes, ticket, life)
if left > 1 then
    redis.call('decr', latch)
    if redis.call('pttl', notes) < WEEK then
        redis.call('pexpire', notes, WEEK)
    end
    return left - 1
end
open_latch(latch, notes, ARGV[3])
return 0
