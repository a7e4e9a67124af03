-- wait_leave: a client does not wait for a plain or write lock any more.
--
-- KEYS  1 lock hash
-- ARGV  1 the lock's channel   2 the channel on which the client is called
--       then the commands to publish with; none = 'publish'
-- Gives 1 when another client was called, else 0.
--
-- The client may have been called just now. So if the lock is free, the next
-- one is called. Twice is harmless: at worst two clients ask. Also for a
-- client that is called and has nobody that waits, and for a listener without
-- waiters that hears of a release by others.
local channel, mine, HOW = ARGV[1], ARGV[2], 3
--@include publish
--@include call_waiter

redis.pcall('zrem', key_of('waiters', channel), mine)
if redis.call('pttl', KEYS[1]) ~= -2 then
    return 0
end
return call_waiter(channel, KEYS[1], 0)
