-- notify_waiter: calls the client that waits longest for a lock.
--
-- Needs publish. Gives key_of(what, channel) and
-- notify_waiter(channel, lock, heard, told).

-- A key beside a lock, by the name of the lock's channel.
local function key_of(what, channel)
    return 'dibs_lock_' .. what .. (channel:match(':.*') or '')
end

-- The lock is free, and `heard` heard of it on its channel. The first client in
-- the queue that hears is called, and is out of the queue then. It asks, and if
-- another one was faster, it comes back to the front. A client that does not
-- hear is not there any more. `told` on the lock's channel tells the listener
-- that it need not ask; other clients ignore it, or ask in vain. false: it is
-- not told. Gives how many were woken: the one that was called, and those who
-- heard. If nobody was called, the listener does not count.
local function notify_waiter(channel, lock, heard, told)
    local queue = key_of('waiters', channel)
    for _ = 1, 128 do
        local who = redis.pcall('zpopmin', queue)[1]
        if not who then
            break
        elseif publish(who, lock) ~= 0 or ARGV[#ARGV] == 'publish' then
            if told then
                publish(channel, told)
            end
            return math.max(heard, 0) + 1
        end
    end
    local left = told and heard > 0 and
        redis.pcall('pttl', key_of('listener', channel))
    if type(left) ~= 'number' or left <= 0 then
        return heard
    end
    publish(channel, told)
    return heard - 1
end
