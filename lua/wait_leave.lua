-- wait_leave: a client does not wait for a plain or write lock any more.
--
-- KEYS  1 lock hash
-- ARGV  1 the lock's channel   2 the channel on which the client is called
--       3 '1' if it listens no more, either   then the commands to publish
--       with; none = 'publish'
-- Gives how many others were called.
--
-- The client may have been called just now. So if the lock is free, the next
-- one is called. If this client was the listener, and is so no more, another
-- one has to ask in vain to take that over. So two are called then: one may get
-- the lock. Twice is harmless: at worst some clients ask. Also for a client
-- that is called and has nobody that waits, and for a listener without waiters
-- that hears of a release by others.
local channel, mine, HOW = ARGV[1], ARGV[2], 4
--@include publish
--@include call_waiter

redis.pcall('zrem', key_of('waiters', channel), mine)
local listener = key_of('listener', channel)
local duty = ARGV[3] == '1' and redis.pcall('get', listener) == mine
if duty then
    redis.pcall('del', listener)
end
local free = redis.call('pttl', KEYS[1]) == -2
local called = (free or duty) and call_waiter(channel, KEYS[1], 0) or 0
if free and duty and called > 0 then
    called = called + call_waiter(channel, KEYS[1], 0)
end
return called
