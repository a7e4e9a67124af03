-- slots_release: releases a permit.
--
-- KEYS  1 number of free permits   2 acquired permits: ids, scored by their end
--       3 slot table: slot number -> permit id and owner
-- ARGV  1 permit id   2 slot number, '' if not known   3 target hold count
--       4 hold-off: ms for which the permit stays acquired, '0' frees it
--       5 channel   then the publish commands (none: 'publish')
-- Returns if freed SCRIPT_FREED plus the number of clients woken (a hint);
--       SCRIPT_LEVEL_RELEASED; SCRIPT_NOT_HELD if the permit is not acquired.
--
-- Idempotent: a permit that is not acquired is not counted. If the number of
-- free permits was lost, it is not recreated here: only the total allows that.
-- Works at maxmemory once the ZREM has been executed. The message is the number
-- of free permits, for clients that do not know the queue. The client that has
-- waited longest is notified, and the message '0' tells the listener so; to
-- other clients it means that no permit is free.
local count, permits, slot_table = KEYS[1], KEYS[2], KEYS[3]
local id, slot, target, hold_off = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local PUBLISH_ARGS = 6

if target ~= '0' then
    return redis.call('zscore', permits, id) and SCRIPT_LEVEL_RELEASED or
        SCRIPT_NOT_HELD
end
if hold_off ~= '0' then
--@include now
    if not redis.call('zscore', permits, id) then
        return SCRIPT_NOT_HELD
    end
    -- Redis checks for OOM only before a script's first write: a no-op write.
    redis.pcall('zrem', permits, '')
    redis.call('zadd', permits, 'xx', now + tonumber(hold_off), id)
    return SCRIPT_FREED
end
local free = redis.call('get', count)
if free and (#free > 16 or not free:find('^%-?%d+$')) then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
elseif redis.call('zrem', permits, id) == 0 then
    -- A later permit with this id must not find this entry.
    local entry = slot ~= '' and redis.pcall('hget', slot_table, slot)
    if type(entry) == 'string' and entry:sub(1, 16) == id then
        redis.pcall('hdel', slot_table, slot)
    end
    return SCRIPT_NOT_HELD
end
if slot ~= '' then
    redis.pcall('hdel', slot_table, slot)
end
if not free then
    return SCRIPT_FREED
end
free = redis.call('incrby', count, '1')
if free <= 0 then
    return SCRIPT_FREED
end
--@include publish
--@include notify_waiter
local receivers = publish(ARGV[5], ('%d'):format(free))
if receivers >= 0 or receivers_unknown then
    receivers = notify_waiter(ARGV[5], count, receivers, '0')
end
return SCRIPT_FREED + math.max(receivers, 0)
