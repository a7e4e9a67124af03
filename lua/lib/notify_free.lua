-- notify_free: tells those who wait that permits are free.
--
-- Needs publish. Gives notify_free(channel, free, many).

-- free: how many there are; many: how many of them are new. One message tells
-- how many are free. A waiter of other clients may need one for each permit, so
-- up to eight are sent. Gives how many heard.
local function notify_free(channel, free, many)
    if free <= 0 then
        return 0
    end
    local heard = publish(channel, ('%.0f'):format(free))
    for _ = 2, math.min(many, free, 8) do
        publish(channel, '1')
    end
    return math.max(heard, 0)
end
