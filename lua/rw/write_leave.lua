-- write_leave: a writer that waited does so no more; or its hold is to end.
--
-- KEYS  1 lock hash   2 channel   3 key of a waiting writer
-- ARGV  1 owner   2 '1' to end its hold as well   then the commands to publish
--       with; none = 'publish'
-- Gives 1 when a hold was ended, else 0; -6 when the key holds a hash that is
--       no lock.
local key, channel, writer_intent = KEYS[1], KEYS[2], KEYS[3]
local writer, PUBLISH_ARGS = ARGV[1] .. ':write', 3
local ended, tell = 0, false
--@include is_lock
--@include publish
--@include notify_waiter
--@include drop_value

if redis.pcall('get', writer_intent) == ARGV[1] then
    redis.call('del', writer_intent)
    tell = true
end
if ARGV[2] == '1' and redis.call('exists', key) == 1 and
    not all_holds(redis.call('hrandfield', key, 8, 'withvalues')) then
    ended = -6
elseif ARGV[2] == '1' and redis.call('hexists', key, writer) == 1 then
    redis.call('hdel', key, writer)
    drop_value(channel, writer)
    if redis.call('hlen', key) <= 1 then
        redis.call('del', key)
    else
        redis.call('hset', key, 'mode', 'read')
    end
    ended, tell = 1, true
end
if tell then
    publish(channel, '1')
    publish(channel, '0')
    notify_waiter(channel, key, 0, '2')
end
return ended
