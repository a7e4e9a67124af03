-- write_release: give back one write hold; the last one lets others in. If its
-- owner reads too, it goes on reading, and other readers may join.
--
-- KEYS  1 lock hash   2 channel   3 key of a waiting writer
-- ARGV  1 owner   2 holds it will then have   3 ms to leave the lock taken, by
--       nobody, when that is none; '0' = free it   then the commands to
--       publish with; none = 'publish'
-- Gives >= 1 when its writing ended: 1 + how many heard of it; 0 when held once
--       less; -1 when this owner does not write.
--
-- Readers that waited get their chance before the next writer keeps them out
-- again. Twice is harmless. A full server refuses nothing of this.
local key, channel, writer_intent = KEYS[1], KEYS[2], KEYS[3]
local writer, target, keep = ARGV[1] .. ':write', ARGV[2], ARGV[3]
local PUBLISH_ARGS = 4
--@include set_lower_count
--@include publish
--@include shorten_ttl

local has
if target == '0' and keep == '0' then
    has = redis.call('hdel', key, writer) == 1
else
    has = redis.call('hget', key, writer)
end
if not has then
    return -1
elseif target ~= '0' then
    return set_lower_count(key, writer, has, target)
elseif keep ~= '0' then
    -- An owner that reads, too, needs the key for that: then it is not kept. It
    -- may do so by another name.
    if redis.call('hlen', key) <= 2 then
        if shorten_ttl(key, keep) then
            publish(channel, '1')
            publish(channel, '0')
        end
        return 1
    end
    redis.call('hdel', key, writer)
end
if redis.call('hlen', key) <= 1 then
    redis.call('del', key, writer_intent)
else
    redis.call('del', writer_intent)
    redis.call('hset', key, 'mode', 'read')
end
-- '1' wakes all who sleep in a Redisson client, '0' one that is about to.
local heard = publish(channel, '1')
publish(channel, '0')
if heard >= 0 or ARGV[#ARGV] == 'publish' then
--@include notify_waiter
    heard = notify_waiter(channel, key, heard, '2')
end
return 1 + math.max(heard, 0)
