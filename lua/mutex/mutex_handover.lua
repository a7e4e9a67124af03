-- mutex_handover: moves the lock from one owner of a client to another.
--
-- KEYS  1 lock hash
-- ARGV  1 old owner field   2 new owner field   3 lease in ms   4 channel, only
--       if the lock may end sooner than before; then the publish commands
--       (none: 'publish')
-- Returns SCRIPT_MOVED; SCRIPT_NOT_HELD if neither owner holds the lock.
--
-- The old owner has one hold, and so has the new one. Idempotent: a repeated
-- request finds the new owner. For other clients the lock was held all the
-- time, so they are notified only of a sooner end: waiters may sleep until the
-- old one. The lease is set first: if the server refuses it, or has no memory,
-- the old owner keeps the lock.
local key, old, new, lease = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local channel, PUBLISH_ARGS = ARGV[4], 5
local holds = redis.call('hmget', key, old, new)

if not holds[1] and not holds[2] then
    return SCRIPT_NOT_HELD
end
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
return SCRIPT_MOVED
