-- deregister: a client does not wait any more.
--
-- Needs publish, notify_waiter. Gives deregister(channel, lock, mine, deaf,
-- free, told).

-- The client may have been called just now. So if the lock is free, the next
-- one is called. If this client was the listener, and is so no more (deaf),
-- another one has to ask in vain to take that over. So two are called then: one
-- may get the lock. Gives how many were called.
local function deregister(channel, lock, mine, deaf, free, told)
    redis.pcall('zrem', key_of('waiters', channel), mine)
    local listener = key_of('listener', channel)
    local duty = deaf and redis.pcall('get', listener) == mine
    if duty then
        redis.pcall('del', listener)
    end
    local called = (free or duty) and notify_waiter(channel, lock, 0, told) or 0
    if free and duty and called > 0 then
        called = called + notify_waiter(channel, lock, 0, told)
    end
    return called
end
