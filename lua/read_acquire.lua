-- read_acquire: join the readers, or say how long to wait.
--
-- KEYS  1 lock hash   2 this owner's read key   3 key of a waiting writer
-- ARGV  1 owner   2 holds it will then have   3 lease in ms
-- Gives nil when taken; >= -1 when busy for so many ms; -3 when the outer holds
--       of a re-entry are gone; -6 when the key holds another kind of lock.
--
-- A read hold counts as long as its read key lives. One key serves all holds of
-- an owner: it lives as long as the longest of them. A writer that waits keeps
-- new readers out, but not those who read already, nor the holder of the write
-- lock. Twice is harmless.
local key, mine, gate = KEYS[1], KEYS[2], KEYS[3]
local owner, target, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local left = redis.call('pttl', key)
local mode = left ~= -2 and redis.call('hget', key, 'mode')

if left ~= -2 and not mode then
    return -6
end
local reads = mode and redis.call('pttl', mine) or -2
local has = reads ~= -2 and tonumber(redis.call('hget', key, owner) or 0) or 0
if has == 0 then
    reads = -2
end
if reads == -2 then
    if target ~= '1' then
        return -3
    end
    if mode == 'write' and redis.call('hexists', key, owner .. ':write') == 0 then
        return left
    end
    if mode ~= 'write' and redis.call('exists', gate) == 1 then
        return math.max(redis.call('pttl', gate), 1)
    end
end

if not mode then
    redis.call('hset', key, 'mode', 'read', owner, target)
elseif has < tonumber(target) then
    redis.call('hset', key, owner, target)
end
local done = true
if left < lease then
    done = redis.pcall('pexpire', key, ARGV[3])
end
if type(done) ~= 'table' and reads < lease then
    done = redis.pcall('set', mine, '1', 'px', ARGV[3])
end
if type(done) == 'table' and done.err then
    if target ~= '1' then
        redis.call('hset', key, owner, tonumber(target) - 1)
    elseif mode then
        redis.call('hdel', key, owner)
    else
        redis.call('del', key)
    end
    return done
end
return false
