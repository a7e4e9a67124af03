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
-- Those who waited get their chance before the next writer keeps them out
-- again. Twice is harmless. A full server refuses nothing of this: once a
-- script has written, it may go on (see basic_release).
local key, channel, gate = KEYS[1], KEYS[2], KEYS[3]
local writer, target, keep = ARGV[1] .. ':write', ARGV[2], ARGV[3]

local has = redis.call('hget', key, writer)
if not has then
    return -1
end
if target ~= '0' then
    if (tonumber(has) or math.huge) > tonumber(target) then
        local done = redis.pcall('hset', key, writer, target)
        if type(done) == 'table' then
            redis.pcall('hdel', key, '')
            redis.call('hset', key, writer, target)
        end
    end
    return 0
end
-- Whoever reads, too, needs the key for that: then there is no keeping.
if keep ~= '0' and redis.call('hexists', key, ARGV[1]) == 0 then
    redis.call('pexpire', key, keep)
    return 1
end
redis.call('hdel', key, writer)
redis.call('del', gate)
if redis.call('hlen', key) <= 1 then
    redis.call('del', key)
else
    redis.call('hset', key, 'mode', 'read')
end
-- '1' wakes all who sleep in a Redisson client, '0' one that is about to.
local most = 0
for i = 4, math.max(4, #ARGV) do
    local heard = redis.pcall(ARGV[i] or 'publish', channel, '1')
    redis.pcall(ARGV[i] or 'publish', channel, '0')
    most = math.max(most, type(heard) == 'number' and heard or 0)
end
return 1 + most
