-- leave_queue: takes a client that got the lock out of the queue.
--
-- Gives leave_queue(channel, mine, how), as register.

-- A client that looks by itself and finds the lock free was not called: a lease
-- has ended, or nobody listens. So the next one that asks listens again.
local function leave_queue(channel, mine, how)
    local name = channel:match(':.*') or ''
    redis.pcall('zrem', 'dibs_lock_waiters' .. name, mine)
    if how == 'again' then
        redis.pcall('del', 'dibs_lock_listener' .. name)
    end
end
