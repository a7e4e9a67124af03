-- mutex_handover: pass the lock from one owner of a client to the next.
--
-- KEYS  1 lock hash
-- ARGV  1 old owner field   2 new owner field   3 lease in ms   4 channel, if
--       that may end sooner than before; then the commands to publish with;
--       none = 'publish'
-- Gives 1 when the new owner has it, -1 when neither of them does.
--
-- The old owner has one hold, the new one gets one. Twice is harmless: a
-- second sending finds the new owner in place. To everybody else the lock was
-- held all the time, so nobody is told, but of an end that comes sooner: those
-- who wait may sleep until the old end. The lease comes first: where that, or
-- memory, is refused, the old owner still has it.
local key, old, new, lease = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local channel, PUBLISH_ARGS = ARGV[4], 5
local holds = redis.call('hmget', key, old, new)

if not holds[1] and not holds[2] then
    return -1
end
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
return 1
