-- read_force: end one owner's reading, or that of all readers.
--
-- KEYS  1 lock hash   2 that owner's read key   3 channel
-- ARGV  1 owner   2 key_prefix and 3 key_suffix of the name of an owner's read key, which
--       has the number of a hold behind it   4 '1' for all, if this owner is
--       among them   then the commands to publish with; none = 'publish'
-- Gives 1 when something ended, else 0; -6 when the key holds a hash that is no
--       lock; an error when it holds another kind of lock.
local key, mine, channel = KEYS[1], KEYS[2], KEYS[3]
local owner, key_prefix, key_suffix, PUBLISH_ARGS = ARGV[1], ARGV[2], ARGV[3], 5
local found = redis.call('hmget', key, owner, 'mode')
local MOST, FEW = 1000, 8
--@include is_lock
--@include publish
--@include notify_waiter

if redis.call('exists', key) == 1 and
    not all_holds(redis.call('hrandfield', key, FEW, 'withvalues')) then
    return -6
elseif not found[1] then
    return 0
elseif not found[2] then
    return redis.error_reply('WRONGTYPE the key holds another kind of lock')
end
redis.call('hdel', key, owner)
redis.call('del', mine)
if found[2] == 'write' then
    return 1
end

local function lives(field, holds)
    for i = 1, math.min(holds, MOST) do
        if redis.call('exists', key_prefix .. field .. key_suffix .. i) == 1 then
            return true
        end
    end
    return false
end

local all = redis.call('hgetall', key)
local others = #all > 2 and not all_holds(all) -- there is more than a lock in it
for i = 1, #all, 2 do
    local holds = tonumber(all[i + 1])
    if holds and ARGV[4] == '1' then
        redis.call('del', key_prefix .. all[i] .. key_suffix .. '1')
    elseif holds and lives(all[i], holds) then
        return 1
    end
end
if not others then
    redis.call('del', key)
end
publish(channel, '0')
notify_waiter(channel, key, 0, '2')
return 1
