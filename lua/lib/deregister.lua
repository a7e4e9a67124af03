-- deregister: removes a client that stops waiting from the wait queue.
--
-- Requires publish, notify_waiter. Provides deregister(channel, lock,
-- client_channel, stops_listening, free, listener_message).

-- The client may have been notified just before. So if the lock is free, the
-- next client is notified. If this client was the listener and stops listening,
-- another client must register to replace it, so one is notified even if the
-- lock is taken; if the lock is free two are, because one may acquire it.
-- Returns the number of clients notified.
local function deregister(channel, lock, client_channel, stops_listening, free,
                          listener_message)
    redis.pcall('zrem', wait_key('waiters', channel), client_channel)
    local key = wait_key('listener', channel)
    local was_listener = stops_listening and
        redis.pcall('get', key) == client_channel
    if was_listener then
        redis.pcall('del', key)
    end
    local woken = (free or was_listener) and
        notify_waiter(channel, lock, 0, listener_message) or 0
    if free and was_listener and woken > 0 then
        woken = woken + notify_waiter(channel, lock, 0, listener_message)
    end
    return woken
end
