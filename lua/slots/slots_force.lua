-- slots_force: end one permit, of any owner.
--
-- KEYS  1 number of free permits   2 permits that are out, by their end
--       3 number of a slot -> id and owner of the permit
-- ARGV  1 the permit: 32 hex digits of its id, or its owner   2 channel, then
--       the commands to publish with; none = 'publish'
-- Gives 1 when it ended something, 0 when there is no such permit.
--
-- It names the permit it means, so that one that comes late cannot end a
-- stranger's. Also used to take back what was granted too late.
local count, out, seats = KEYS[1], KEYS[2], KEYS[3]
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
    local all = redis.call('hgetall', seats)
    for i = 1, #all, 2 do
        if all[i + 1]:sub(17) == ARGV[1] and
            redis.call('zscore', out, all[i + 1]:sub(1, 16)) then
            id = all[i + 1]:sub(1, 16)
        end
    end
end
if not id or redis.call('zrem', out, id) == 0 then
    return 0
end
if free then
    free = redis.call('incrby', count, 1)
    if free > 0 then
        publish(ARGV[2], ('%.0f'):format(free))
        notify_waiter(ARGV[2], count, 0, '0')
    end
end
return 1
