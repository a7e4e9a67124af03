-- slots_set: sets the total number of permits.
--
-- KEYS  1 number of free permits   2 acquired permits: ids, scored by their end
-- ARGV  1 total   2 '1': only if it was not set before   3 channel   then the
--       publish commands (none: 'publish')
-- Returns the previous total, -1 if it was not set; SCRIPT_WRONG_TYPE if the key
--       holds no number.
--
-- Idempotent: sets a state. If the total is below the number of acquired
-- permits, the number of free permits is negative until enough are released;
-- permits already acquired are not affected.
local count, permits = KEYS[1], KEYS[2]
local total = tonumber(ARGV[1])
local PUBLISH_ARGS = 4
--@include publish
--@include notify_free
--@include notify_waiter
--@include parse_int

local free = redis.call('get', count)
local acquired = redis.call('zcard', permits)
if free and not parse_int(free) then
    return SCRIPT_WRONG_TYPE
end
local previous = free and parse_int(free) + acquired or -1
if not free then
    free = total - acquired
    redis.call('set', count, ('%.0f'):format(free))
elseif previous ~= total and ARGV[2] ~= '1' then
    free = redis.call('incrby', count, ('%.0f'):format(total - previous))
else
    return previous
end
if total > previous then
    notify_free(ARGV[3], free, total - math.max(previous, 0))
    if free > 0 then
        notify_waiter(ARGV[3], count, 0, '0')
    end
end
return previous
