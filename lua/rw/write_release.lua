-- write_release: releases one write hold; the last release ends writing. If its
-- owner also reads, the lock changes to read mode, and other readers may join.
--
-- KEYS  1 lock hash   2 channel   3 writer intent
-- ARGV  1 owner   2 target hold count   3 hold-off: ms for which the lock stays
--       taken after its last release, '0' frees it   then the publish commands
--       (none: 'publish')
-- Returns if writing ended SCRIPT_FREED plus the number of clients woken;
--       SCRIPT_LEVEL_RELEASED; SCRIPT_NOT_HELD if this owner does not write.
--
-- Deletes the writer intent, so that waiting readers are admitted before the
-- next writer blocks them. Idempotent. Works at maxmemory.
local key, channel, writer_intent = KEYS[1], KEYS[2], KEYS[3]
local writer, target, hold_off = ARGV[1] .. ':write', ARGV[2], ARGV[3]
local PUBLISH_ARGS = 4
--@include set_lower_count
--@include publish
--@include shorten_ttl

local has
if target == '0' and hold_off == '0' then
    has = redis.call('hdel', key, writer) == 1
else
    has = redis.call('hget', key, writer)
end
if not has then
    return SCRIPT_NOT_HELD
elseif target ~= '0' then
    return set_lower_count(key, writer, has, target)
elseif hold_off ~= '0' then
    -- No hold-off if the owner also reads, possibly under another id: it needs
    -- the key in read mode.
    if redis.call('hlen', key) <= 2 then
        if shorten_ttl(key, hold_off) then
            publish(channel, '1')
            publish(channel, '0')
        end
        return SCRIPT_FREED
    end
    redis.call('hdel', key, writer)
end
if redis.call('hlen', key) <= 1 then
    redis.call('del', key, writer_intent)
else
    redis.call('del', writer_intent)
    redis.call('hset', key, 'mode', 'read')
end
-- '1' wakes all waiters of a Redisson client, '0' one that is about to wait.
local receivers = publish(channel, '1')
publish(channel, '0')
if receivers >= 0 or receivers_unknown then
--@include notify_waiter
    receivers = notify_waiter(channel, key, receivers, '2')
end
return SCRIPT_FREED + math.max(receivers, 0)
