-- mutex_force: end one owner's hold, however often it holds.
--
-- KEYS  1 lock hash
-- ARGV  1 owner field   2 channel   then the commands to publish with; none =
--       'publish'
-- Gives 1 when it ended something, 0 when this owner did not hold the lock, -6
--       when the key holds a hash that is no lock.
--
-- The script names the owner it means, so one that comes late cannot end a
-- stranger's hold. Also used to take back a hold that was granted too late. A
-- read-write lock of that name is not ours to end.
local key, owner, channel, PUBLISH_ARGS = KEYS[1], ARGV[1], ARGV[2], 3
--@include is_lock
--@include publish
--@include notify_waiter
--@include drop_value

local found = redis.call('hmget', key, owner, 'mode')
if found[2] then
    return redis.error_reply('WRONGTYPE the key holds a read-write lock')
elseif not is_lock(key) then
    return -6
elseif not found[1] then
    return 0
end
redis.call('del', key)
drop_value(channel, owner)
publish(channel, '0')
notify_waiter(channel, key, 0, '2')
return 1
