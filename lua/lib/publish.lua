-- publish: publishes a message.
--
-- Requires PUBLISH_ARGS, the index in ARGV at which the publish commands begin
-- (none: 'publish'). Provides publish(channel, message), receivers_unknown.

-- PUBLISH reaches all nodes of a cluster, but counts the subscribers of this
-- node only.
local receivers_unknown = ARGV[#ARGV] == 'publish'

-- Returns the number of receivers at this node; -1 if the user may not publish.
local function publish(channel, message)
    local most = -1
    for i = PUBLISH_ARGS, math.max(PUBLISH_ARGS, #ARGV) do
        local receivers = redis.pcall(ARGV[i] or 'publish', channel, message)
        most = math.max(most, type(receivers) == 'number' and receivers or -1)
    end
    return most
end
