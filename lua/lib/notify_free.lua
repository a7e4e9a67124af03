-- notify_free: notifies waiters of free permits.
--
-- Requires publish. Provides notify_free(channel, free, added).

-- free: number of free permits; added: how many of them are new. The message is
-- the number of free permits. Waiters of other clients may need a message for
-- each permit, so up to eight are sent. Returns the number of receivers.
local function notify_free(channel, free, added)
    if free <= 0 then
        return 0
    end
    local receivers = publish(channel, ('%.0f'):format(free))
    for _ = 2, math.min(added, free, 8) do
        publish(channel, '1')
    end
    return math.max(receivers, 0)
end
