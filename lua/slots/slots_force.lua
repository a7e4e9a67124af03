-- slots_force: releases one permit, of any owner.
--
-- KEYS  1 number of free permits   2 acquired permits: ids, scored by their end
--       3 slot table: slot number -> permit id and owner
-- ARGV  1 permit: 32 hex digits of its id, or its owner   2 channel   then the
--       publish commands (none: 'publish')
-- Returns SCRIPT_ENDED; 0 if there is no such permit.
--
-- The permit is named, so a delayed request cannot release another one. Also
-- rolls back an acquire that was granted too late.
local count, permits, slot_table = KEYS[1], KEYS[2], KEYS[3]
local PUBLISH_ARGS = 3
--@include publish
--@include notify_waiter
--@include parse_int

local free = redis.call('get', count)
if free and not parse_int(free) then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
local id
if #ARGV[1] == 32 and not ARGV[1]:find('%X') then
    id = ARGV[1]:gsub('%x%x', function(byte)
        return string.char(tonumber(byte, 16))
    end)
else
    local all = redis.call('hgetall', slot_table)
    for i = 1, #all, 2 do
        if all[i + 1]:sub(17) == ARGV[1] and
            redis.call('zscore', permits, all[i + 1]:sub(1, 16)) then
            id = all[i + 1]:sub(1, 16)
        end
    end
end
if not id or redis.call('zrem', permits, id) == 0 then
    return 0
end
if free then
    free = redis.call('incrby', count, 1)
    if free > 0 then
        publish(ARGV[2], ('%.0f'):format(free))
        notify_waiter(ARGV[2], count, 0, '0')
    end
end
return SCRIPT_ENDED
