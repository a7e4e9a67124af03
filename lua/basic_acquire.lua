-- basic_acquire: take the lock, or say how long its holder still has.
--
-- KEYS  1 lock hash
-- ARGV  1 owner field   2 holds the owner will then have   3 lease in ms
-- Gives nil when taken; >= -1 when busy: the holder's remaining time in ms,
--       -1 if it has none; -3 when the outer holds of a re-entry are gone; -6
--       when the key holds a read-write lock, or a hash that is no lock.
--
-- Twice is harmless, and so is late: it raises the number of holds to the one
-- wanted, it does not add one. A re-entry never shortens the lease. The hash
-- never stays without a TTL: where the expiry is refused (a missing right),
-- what was written is undone. Who has it always writes, so that a WAIT behind
-- it counts it, also the second time and on another connection.
local key, owner, target, lease = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
--@include is_lock

local left = redis.call('pttl', key)
local has

if left == -2 then
    if target ~= '1' then
        return -3
    end
else
    local found = redis.call('hmget', key, owner, 'mode')
    if found[2] then
        return -6
    end
    has = tonumber(found[1] or nil)
    if not has and target ~= '1' then
        return -3
    elseif not has then
        return is_lock(key) and left or -6
    end
end

if not has or has < tonumber(target) then
    redis.call('hset', key, owner, target)
end
if left < tonumber(lease) then
    local done = redis.pcall('pexpire', key, lease)
    if type(done) == 'table' then
        if target == '1' then
            redis.call('del', key)
        else
            redis.call('hset', key, owner, tonumber(target) - 1)
        end
        return {err = done.err .. ' (pexpire)'}
    end
elseif has and has >= tonumber(target) then
    redis.pcall('pexpire', key, left) -- nothing new, but something written
end
return false
