-- fenced_handover: moves the lock from one owner of a client to another, and
-- issues a token.
--
-- KEYS  1 lock hash   2 the last token
-- ARGV  1 old owner field   2 new owner field   3 lease in ms   4 '1' for small
--       tokens   5 channel, only if the lock may end sooner than before; then
--       the publish commands (none: 'publish')
-- Returns the token as a string; SCRIPT_NOT_HELD if neither owner holds the
--       lock.
--
-- The old owner has one hold, and so has the new one. Idempotent: a repeated
-- request finds the new owner, and the last token is its own. Token and lease
-- are written first: if they are refused, or memory is, the old owner keeps the
-- lock.
local key, token_key = KEYS[1], KEYS[2]
local old, new, lease = ARGV[1], ARGV[2], ARGV[3]
local channel, PUBLISH_ARGS = ARGV[5], 6
--@include token

local holds = redis.call('hmget', key, old, new)

if not holds[1] and not holds[2] then
    return SCRIPT_NOT_HELD
end
local token = not holds[1] and redis.call('get', token_key) or
    next_token(token_key, ARGV[4] == '1')
--@include handover_lease
if holds[1] then
    redis.call('hset', key, new, '1')
    redis.call('hdel', key, old)
end
if ends_sooner then
--@include publish
    publish(channel, '0')
    publish(channel, '2') -- queued waiters are notified when the lock is free
end
return token
