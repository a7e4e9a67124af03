-- holders: all holders of a lock hash, of any kind.
--
-- KEYS  1 lock hash
-- ARGV  1 prefix and 2 suffix of a read key: prefix, owner, suffix, index of a
--       hold   3 maximum number of holders
-- Returns an array: mode ('' for a lock without one; the number SCRIPT_WRONG_TYPE
--       if the hash is no lock), then owner, hold count and TTL in ms (-1 none,
--       -2 expired) of each.

--@include lock_fields
local key, key_prefix, key_suffix = KEYS[1], ARGV[1], ARGV[2]
local mode = redis.call('hget', key, 'mode')
local ttl = redis.call('pttl', key)
local answer = {mode or ''}
local cursor = '0'

-- Returns the longest TTL of a reader's holds.
local function longest_ttl(owner, holds)
    local longest = -2
    for i = 1, math.min(holds, 1000) do
        longest = math.max(longest, redis.call(
            'pttl', key_prefix .. owner .. key_suffix .. i))
    end
    return longest
end

repeat
    local page = redis.call('hscan', key, cursor, 'count', 100)
    cursor = page[1]
    for i = 1, #page[2], 2 do
        local field, value = page[2][i], page[2][i + 1]
        if field == 'mode' and value ~= 'read' and value ~= 'write' or
            field ~= 'mode' and not is_hold(field, value) then
            return {SCRIPT_WRONG_TYPE}
        elseif field ~= 'mode' and #answer < 3 * tonumber(ARGV[3]) then
            local is_reader = mode and field:sub(-6) ~= ':write'
            answer[#answer + 1] = field
            answer[#answer + 1] = value
            answer[#answer + 1] = is_reader and
                longest_ttl(field, tonumber(value)) or ttl
        end
    end
until cursor == '0' or #answer >= 3 * tonumber(ARGV[3])
if mode and #answer == 1 then
    return {SCRIPT_WRONG_TYPE}
end
return answer
