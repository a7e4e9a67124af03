-- fenced_handover: pass the lock from one owner of a client to the next, with a
-- token of its own.
--
-- KEYS  1 lock hash   2 the last token
-- ARGV  1 old owner field   2 new owner field   3 lease in ms   4 '1' for small
--       tokens
-- Gives the token as text when the new owner has it, -1 when neither of them
--       does.
--
-- The old owner has one hold, the new one gets one. Twice is harmless: a second
-- sending finds the new owner in place, and the last token is its own. Token
-- and lease come first: where they, or memory, are refused, the old owner still
-- has it.
local key, tokens = KEYS[1], KEYS[2]
local old, new, lease = ARGV[1], ARGV[2], ARGV[3]
--@include token

local holds = redis.call('hmget', key, old, new)

if not holds[1] and not holds[2] then
    return -1
end
local token = not holds[1] and redis.call('get', tokens) or
    next_token(tokens, ARGV[4] == '1')
if holds[1] or redis.call('pttl', key) < tonumber(lease) then
    redis.call('pexpire', key, lease)
end
if holds[1] then
    redis.call('hset', key, new, '1')
    redis.call('hdel', key, old)
end
return token
