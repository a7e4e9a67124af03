-- mutex_force: ends one owner's hold, whatever its hold count.
--
-- KEYS  1 lock hash
-- ARGV  1 owner field   2 channel   then the publish commands (none: 'publish')
-- Returns SCRIPT_ENDED; 0 if this owner did not hold the lock; SCRIPT_WRONG_TYPE
--       if the key holds a hash that is no lock; an error for a read-write
--       lock.
--
-- The owner is named, so a delayed request cannot end another owner's hold.
-- Also rolls back an acquire that was granted too late.
local key, owner, channel, PUBLISH_ARGS = KEYS[1], ARGV[1], ARGV[2], 3
--@include is_lock
--@include publish
--@include notify_waiter
--@include drop_value

local found = redis.call('hmget', key, owner, 'mode')
if found[2] then
    return redis.error_reply('WRONGTYPE the key holds a read-write lock')
elseif not is_lock(key) then
    return SCRIPT_WRONG_TYPE
elseif not found[1] then
    return 0
end
redis.call('del', key)
drop_value(channel, owner)
publish(channel, '0')
notify_waiter(channel, key, 0, '2')
return SCRIPT_ENDED
