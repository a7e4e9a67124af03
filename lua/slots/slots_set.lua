-- slots_set: say how many permits there are.
--
-- KEYS  1 number of free permits   2 permits that are out, by their end
-- ARGV  1 how many   2 '1': only if nobody has said so   3 channel, then the
--       commands to publish with; none = 'publish'
-- Gives how many there were, -1 if nobody had said so; -6 when the key holds no
--       number.
--
-- It is told the state to reach, so twice is harmless. With fewer permits than
-- are out the number of free ones is below zero until enough came back; nobody
-- loses one.
local count, out = KEYS[1], KEYS[2]
local wanted = tonumber(ARGV[1])
local PUBLISH_ARGS = 4
--@include publish
--@include notify_free
--@include notify_waiter
--@include parse_int

local free = redis.call('get', count)
local many = redis.call('zcard', out)
if free and not parse_int(free) then
    return -6
end
local was = free and parse_int(free) + many or -1
if not free then
    free = wanted - many
    redis.call('set', count, ('%.0f'):format(free))
elseif was ~= wanted and ARGV[2] ~= '1' then
    free = redis.call('incrby', count, ('%.0f'):format(wanted - was))
else
    return was
end
if wanted > was then
    notify_free(ARGV[3], free, wanted - math.max(was, 0))
    if free > 0 then
        notify_waiter(ARGV[3], count, 0, '0')
    end
end
return was
