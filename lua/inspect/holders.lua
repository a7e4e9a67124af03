-- holders: everybody who holds a lock, of any kind.
--
-- KEYS  1 lock hash
-- ARGV  1 key_prefix and 2 key_suffix of the name of an owner's read key, which has the
--       number of a hold behind it   3 how many
-- Gives an array: mode ('' for a lock without one; the number -6: the hash is
--       no lock), then owner, holds and remaining time in ms (-1 none, -2 over)
--       of each.

--@include is_lock
local key, key_prefix, key_suffix = KEYS[1], ARGV[1], ARGV[2]
local mode = redis.call('hget', key, 'mode')
local left = redis.call('pttl', key)
local answer = {mode or ''}
local cursor = '0'

-- The longest lease of a reader's holds.
local function longest(owner, holds)
    local most = -2
    for i = 1, math.min(holds, 1000) do
        most = math.max(most, redis.call('pttl', key_prefix .. owner .. key_suffix .. i))
    end
    return most
end

repeat
    local page = redis.call('hscan', key, cursor, 'count', 100)
    cursor = page[1]
    for i = 1, #page[2], 2 do
        local owner, holds = page[2][i], page[2][i + 1]
        if owner == 'mode' and holds ~= 'read' and holds ~= 'write' or
            owner ~= 'mode' and not is_hold(owner, holds) then
            return {-6}
        elseif owner ~= 'mode' and #answer < 3 * tonumber(ARGV[3]) then
            local ms = left
            if mode and owner:sub(-6) ~= ':write' then
                ms = longest(owner, tonumber(holds))
            end
            answer[#answer + 1] = owner
            answer[#answer + 1] = holds
            answer[#answer + 1] = ms
        end
    end
until cursor == '0' or #answer >= 3 * tonumber(ARGV[3])
if mode and #answer == 1 then
    return {-6}
end
return answer
