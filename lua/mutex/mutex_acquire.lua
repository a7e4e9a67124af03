-- mutex_acquire: take the lock, or say how long its holder still has.
--
-- KEYS  1 lock hash
-- ARGV  1 owner field   2 holds the owner will then have   3 lease in ms
--       and to be called when it is free: 4 the lock's channel   5 the channel
--       on which this client is called   6 'new'; when it is registered,
--       'called' if it was, 'foreign' if it heard of a release that called
--       nobody, else 'again'
-- Gives nil when taken; >= -1 when busy: the holder's remaining time in ms,
--       -1 if it has none; -3 when the outer holds of a re-entry are gone; -6
--       when the key holds a read-write lock, or a hash that is no lock. With
--       channels, busy is an array: that time, and 0, 1 or 2 (see register).
--
-- Twice is harmless, and so is late: the script raises the number of holds to
-- the one wanted, it does not add one. A re-entry never shortens the lease.
local key, owner, target, lease = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local left = redis.call('pttl', key)
local in_queue = ARGV[6] == 'again' or ARGV[6] == 'foreign'
if left == -2 and target == '1' and not in_queue then
--@include take_free_lock
elseif left == -2 and target == '1' then
--@include take_hold
    local failed = take_hold(key, owner, 0, '1', left, lease)
    if not failed then
--@include leave_queue
        leave_queue(ARGV[4], ARGV[5], ARGV[6])
    end
    return failed
elseif left == -2 then
    return -3
end
local found = redis.call('hmget', key, owner, 'mode')
local has = tonumber(found[1] or nil)
if found[2] then
    return -6
elseif has then
--@include take_hold
    return take_hold(key, owner, has, target, left, lease)
elseif target ~= '1' then
    return -3
end

--@include is_lock
if ARGV[6] ~= 'called' and not is_lock(key) then
    return -6
elseif not ARGV[5] then
    return left
end
--@include register
return {left, register(ARGV[4], ARGV[5], ARGV[6])}
