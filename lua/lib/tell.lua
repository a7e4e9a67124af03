-- tell: publishes, with whatever commands the client's servers understand.

-- The commands are in ARGV from `first` on; none = 'publish'. Gives how many
-- heard of it. Without the right to publish nobody hears, and that is all.
local function tell(first, channel, message)
    local most = 0
    for i = first, math.max(first, #ARGV) do
        local heard = redis.pcall(ARGV[i] or 'publish', channel, message)
        most = math.max(most, type(heard) == 'number' and heard or 0)
    end
    return most
end
