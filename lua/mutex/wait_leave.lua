-- wait_leave: a client stops waiting for a mutex, fenced or write lock.
--
-- KEYS  1 lock hash
-- ARGV  1 the lock's channel   2 the channel on which the client is notified
--       3 '1' if it also stops listening to the lock's channel   then the
--       publish commands (none: 'publish')
-- Returns the number of other clients notified.
--
-- Idempotent: a repeated request notifies another client at worst, which then
-- sends an acquire. Also sent by a client that is notified but has no waiter
-- any more, and by a listener without waiters when another client releases the
-- lock.
local PUBLISH_ARGS = 4
--@include publish
--@include notify_waiter
--@include deregister

local free = redis.call('pttl', KEYS[1]) == -2
return deregister(ARGV[1], KEYS[1], ARGV[2], ARGV[3] == '1', free, '2')
