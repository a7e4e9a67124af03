-- slots_release: give back a permit.
--
-- KEYS  1 number of free permits   2 permits that are out, by their end
--       3 number of a slot -> id and owner of the permit
-- ARGV  1 id   2 number of the slot, '' if not known   3 holds the owner will
--       then have   4 ms to leave the permit out, with nobody; '0' = free it
--       5 channel, then the commands to publish with; none = 'publish'
-- Gives >= 1 when freed: 1 + how many were woken (a hint, no more); 0 when held
--       once less; -1 when the permit is not out.
--
-- Twice is harmless: a permit that is not out is not counted. A count that was
-- lost is not made anew: only the total could say how many there are. Works on
-- a full server, once the permit is out of the list. Those who do not know the
-- queue are told how many are free. The client that waits longest is called, and
-- a 0 tells the listener so: to others it says that none is free.
local count, out, seats = KEYS[1], KEYS[2], KEYS[3]
local id, seat, target, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local PUBLISH_ARGS = 6

if target ~= '0' then
    return redis.call('zscore', out, id) and 0 or -1
end
if keep ~= '0' then
    local time = redis.call('time')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    if not redis.call('zscore', out, id) then
        return -1
    end
    redis.pcall('zrem', out, '') -- a full server lets the rest pass then
    redis.call('zadd', out, 'xx', now + tonumber(keep), id)
    return 1
end
local free = redis.call('get', count)
if free and (#free > 16 or not free:find('^%-?%d+$')) then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
elseif redis.call('zrem', out, id) == 0 then
    -- Its number must not count as the owner's when that has a permit again.
    local note = seat ~= '' and redis.pcall('hget', seats, seat)
    if type(note) == 'string' and note:sub(1, 16) == id then
        redis.pcall('hdel', seats, seat)
    end
    return -1
end
if seat ~= '' then
    redis.pcall('hdel', seats, seat)
end
if not free then
    return 1
end
free = redis.call('incrby', count, '1')
if free <= 0 then
    return 1
end
--@include publish
--@include notify_waiter
local heard = publish(ARGV[5], ('%d'):format(free))
if heard >= 0 or ARGV[#ARGV] == 'publish' then
    heard = notify_waiter(ARGV[5], count, heard, '0')
end
return 1 + math.max(heard, 0)
