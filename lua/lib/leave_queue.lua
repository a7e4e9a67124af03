-- leave_queue: removes a client that acquired the lock from its wait queue.
--
-- Provides leave_queue(channel, client_channel, attempt), arguments as those of
-- register.

-- A client that found the lock free on a retry of its own was not notified: a
-- lease expired, or the listener is gone. So the listener is deleted, and the
-- next client that registers becomes listener.
local function leave_queue(channel, client_channel, attempt)
    local suffix = channel:match(':.*') or ''
    redis.pcall('zrem', 'dibs_lock_waiters' .. suffix, client_channel)
    if attempt == 'again' then
        redis.pcall('del', 'dibs_lock_listener' .. suffix)
    end
end
