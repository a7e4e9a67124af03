-- fenced_handover: pass the lock from one owner of a client to the next, with a
-- token of its own.
--
-- KEYS  1 lock hash   2 the last token
-- ARGV  1 old owner field   2 new owner field   3 lease in ms   4 '1' for small
--       tokens   5 channel, if the lock may end sooner than before; then the
--       commands to publish with; none = 'publish'
-- Gives the token as text when the new owner has it, -1 when neither of them
--       does.
--
-- The old owner has one hold, the new one gets one. Twice is harmless: a second
-- sending finds the new owner in place, and the last token is its own. Token
-- and lease come first: where they, or memory, are refused, the old owner still
-- has it.
local key, tokens = KEYS[1], KEYS[2]
local old, new, lease = ARGV[1], ARGV[2], ARGV[3]
local channel, PUBLISH_ARGS = ARGV[5], 6
--@include token

local holds = redis.call('hmget', key, old, new)

if not holds[1] and not holds[2] then
    return -1
end
local token = not holds[1] and redis.call('get', tokens) or
    next_token(tokens, ARGV[4] == '1')
--@include handover_lease
if holds[1] then
    redis.call('hset', key, new, '1')
    redis.call('hdel', key, old)
end
if sooner then
--@include publish
    publish(channel, '0')
    publish(channel, '2') -- clients in the queue are called when it is free
end
return token
