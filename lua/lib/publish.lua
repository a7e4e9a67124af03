-- publish: tells those who listen.
--
-- Needs PUBLISH_ARGS: where the commands to publish with begin in ARGV. Gives
-- publish(channel, message).

-- Gives how many heard at this server; -1 without the right to publish.
local function publish(channel, message)
    local most = -1
    for i = PUBLISH_ARGS, math.max(PUBLISH_ARGS, #ARGV) do
        local heard = redis.pcall(ARGV[i] or 'publish', channel, message)
        most = math.max(most, type(heard) == 'number' and heard or -1)
    end
    return most
end
