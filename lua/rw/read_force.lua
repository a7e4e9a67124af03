-- read_force: ends the read hold of one owner, or of all readers.
--
-- KEYS  1 lock hash   2 that owner's read key   3 channel
-- ARGV  1 owner   2 prefix and 3 suffix of a read key: prefix, owner, suffix,
--       index of a hold   4 '1' for all readers, if this owner is one of them
--       then the publish commands (none: 'publish')
-- Returns SCRIPT_ENDED; 0 if this owner does not read; SCRIPT_WRONG_TYPE if the
--       key holds a hash that is no lock; an error for another kind of lock.
local key, read_key, channel = KEYS[1], KEYS[2], KEYS[3]
local owner, key_prefix, key_suffix = ARGV[1], ARGV[2], ARGV[3]
local PUBLISH_ARGS = 5
local found = redis.call('hmget', key, owner, 'mode')
local MAX_HOLDS, SAMPLE = 1000, 8
--@include lock_fields
--@include publish
--@include notify_waiter

if redis.call('exists', key) == 1 and
    not all_holds(redis.call('hrandfield', key, SAMPLE, 'withvalues')) then
    return SCRIPT_WRONG_TYPE
elseif not found[1] then
    return 0
elseif not found[2] then
    return redis.error_reply('WRONGTYPE the key holds another kind of lock')
end
redis.call('hdel', key, owner)
redis.call('del', read_key)
if found[2] == 'write' then
    return SCRIPT_ENDED
end

-- Returns whether one of the reader's holds has not expired.
local function is_alive(reader, holds)
    for i = 1, math.min(holds, MAX_HOLDS) do
        if redis.call('exists', key_prefix .. reader .. key_suffix .. i) == 1
        then
            return true
        end
    end
    return false
end

local fields = redis.call('hgetall', key)
local has_foreign_field = #fields > 2 and not all_holds(fields)
for i = 1, #fields, 2 do
    local holds = tonumber(fields[i + 1])
    if holds and ARGV[4] == '1' then
        redis.call('del', key_prefix .. fields[i] .. key_suffix .. '1')
    elseif holds and is_alive(fields[i], holds) then
        return SCRIPT_ENDED
    end
end
if not has_foreign_field then
    redis.call('del', key)
end
publish(channel, '0')
notify_waiter(channel, key, 0, '2')
return SCRIPT_ENDED
