-- read_force: end one owner's reading, or that of all readers.
--
-- KEYS  1 lock hash   2 that owner's read key   3 channel
-- ARGV  1 owner   2 head and 3 tail of the name of any owner's read key
--       4 '1' for all, if this owner is among them
-- Gives 1 when something ended, else 0.
local key, mine, channel = KEYS[1], KEYS[2], KEYS[3]
local owner, head, tail = ARGV[1], ARGV[2], ARGV[3]

if redis.call('hexists', key, owner) == 0 then
    return 0
end
redis.call('hdel', key, owner)
redis.call('del', mine)
if redis.call('hget', key, 'mode') == 'write' then
    return 1
end
local live = false
for _, field in ipairs(redis.call('hkeys', key)) do
    if field ~= 'mode' then
        if ARGV[4] == '1' then
            redis.call('del', head .. field .. tail)
        else
            live = live or redis.call('exists', head .. field .. tail) == 1
        end
    end
end
if not live then
    redis.call('del', key)
    redis.pcall('publish', channel, '0')
end
return 1
