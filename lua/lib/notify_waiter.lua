-- notify_waiter: wakes the client that has waited longest for a lock.
--
-- Requires publish. Provides wait_key(name, channel),
-- notify_waiter(channel, lock, receivers, listener_message).

-- The key of the wait queue ('waiters') or of the listener ('listener') of the
-- lock with this channel; register.lua describes both.
local function wait_key(name, channel)
    return 'dibs_lock_' .. name .. (channel:match(':.*') or '')
end

-- To be called when the lock is free and its release was published to
-- `receivers` subscribers of its channel. Pops clients from the wait queue
-- until one receives the notification; a client without a subscription is gone.
-- The notified client sends an acquire; if another client was faster, it
-- re-enters the queue at the front.
--
-- listener_message, published on the lock's channel, tells the listener that it
-- need not send an acquire; other clients ignore it, or send one in vain.
-- false: nothing is published.
--
-- Returns the number of clients woken: the notified one and the receivers. If
-- none was notified, the listener is not counted.
local function notify_waiter(channel, lock, receivers, listener_message)
    local queue = wait_key('waiters', channel)
    for _ = 1, 128 do
        local waiter = redis.pcall('zpopmin', queue)[1]
        if not waiter then
            break
        elseif publish(waiter, lock) ~= 0 or receivers_unknown then
            if listener_message then
                publish(channel, listener_message)
            end
            return math.max(receivers, 0) + 1
        end
    end
    local ttl = listener_message and receivers > 0 and
        redis.pcall('pttl', wait_key('listener', channel))
    if type(ttl) ~= 'number' or ttl <= 0 then
        return receivers
    end
    publish(channel, listener_message)
    return receivers - 1
end
