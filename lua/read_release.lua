-- read_release: give back one read hold; the last of an owner ends its reading,
-- the last of all frees the lock.
--
-- KEYS  1 lock hash   2 this owner's read key   3 channel
-- ARGV  1 owner   2 holds it will then have   3 head and 4 tail of the name of
--       any owner's read key
-- Gives >= 1 when its reading ended, 0 when held once less, -1 when this owner
--       does not read, or its lease is over.
--
-- Readers whose lease is over do not count. To find one that counts, a few are
-- looked at first; only if none of those lives, all. So with many readers this
-- costs no more than with few. Twice is harmless.
local key, mine, channel = KEYS[1], KEYS[2], KEYS[3]
local owner, target, head, tail = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local FEW = 16

local has = redis.call('hget', key, owner)
if not has then
    return -1
end
local alive = redis.call('exists', mine) == 1
if alive and target ~= '0' then
    if tonumber(has) > tonumber(target) then
        redis.call('hset', key, owner, target)
    end
    return 0
end
redis.call('hdel', key, owner)
redis.call('del', mine)
local answer = alive and 1 or -1
local count = redis.call('hlen', key)
if redis.call('hget', key, 'mode') == 'write' then
    return answer
end

-- The longest lease of these owners, -1 if none lives.
local function longest(fields)
    local most = -1
    for _, field in ipairs(fields) do
        if field ~= 'mode' then
            most = math.max(most, redis.call('pttl', head .. field .. tail))
        end
    end
    return most
end

if count > FEW and longest(redis.call('hrandfield', key, 4)) > 0 then
    return answer
end
local most = count > 1 and longest(redis.call('hkeys', key)) or -1
if most > 0 then
    redis.call('pexpire', key, most)
    return answer
end
redis.call('del', key)
local heard = redis.pcall('publish', channel, '0')
if answer == 1 and type(heard) == 'number' then
    return 1 + heard
end
return answer
