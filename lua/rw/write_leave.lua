-- write_leave: a writer stops waiting; optionally ends its hold.
--
-- KEYS  1 lock hash   2 channel   3 writer intent
-- ARGV  1 owner   2 '1' to end its hold as well   then the publish commands
--       (none: 'publish')
-- Returns SCRIPT_ENDED if a hold was ended, else 0; SCRIPT_WRONG_TYPE if the key
--       holds a hash that is no lock.
local key, channel, writer_intent = KEYS[1], KEYS[2], KEYS[3]
local writer, PUBLISH_ARGS = ARGV[1] .. ':write', 3
local result, wakes = 0, false
local SAMPLE = 8 -- fields that are checked
--@include lock_fields
--@include publish
--@include notify_waiter
--@include drop_value

if redis.pcall('get', writer_intent) == ARGV[1] then
    redis.call('del', writer_intent)
    wakes = true
end
if ARGV[2] == '1' and redis.call('exists', key) == 1 and
    not all_holds(redis.call('hrandfield', key, SAMPLE, 'withvalues')) then
    result = SCRIPT_WRONG_TYPE
elseif ARGV[2] == '1' and redis.call('hexists', key, writer) == 1 then
    redis.call('hdel', key, writer)
    drop_value(channel, writer)
    if redis.call('hlen', key) <= 1 then
        redis.call('del', key)
    else
        redis.call('hset', key, 'mode', 'read')
    end
    result, wakes = SCRIPT_ENDED, true
end
if wakes then
    publish(channel, '1')
    publish(channel, '0')
    notify_waiter(channel, key, 0, '2')
end
return result
