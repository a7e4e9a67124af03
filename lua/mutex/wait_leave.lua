-- wait_leave: a client does not wait for a plain, fenced or write lock any more.
--
-- KEYS  1 lock hash
-- ARGV  1 the lock's channel   2 the channel on which the client is called
--       3 '1' if it listens no more, either   then the commands to publish
--       with; none = 'publish'
-- Gives how many others were called.
--
-- Twice is harmless: at worst some clients ask. Also for a client that is called
-- and has nobody that waits, and for a listener without waiters that hears of a
-- release by others.
local PUBLISH_ARGS = 4
--@include publish
--@include notify_waiter
--@include deregister

local free = redis.call('pttl', KEYS[1]) == -2
return deregister(ARGV[1], KEYS[1], ARGV[2], ARGV[3] == '1', free, '2')
