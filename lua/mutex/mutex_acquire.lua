-- mutex_acquire: acquires the lock, or returns its remaining TTL.
--
-- KEYS  1 lock hash
-- ARGV  1 owner field   2 target hold count   3 lease in ms
--       optional, to wait in the queue: 4 the lock's channel   5 the channel on
--       which this client is notified   6 attempt: 'new', 'called', 'foreign'
--       or 'again', see register
-- Returns nil if acquired; if busy, the holder's TTL in ms, SCRIPT_BUSY_NO_TTL
--       if it has none, with 4 to 6 an array: the TTL and register's result;
--       SCRIPT_OUTER_HOLD_LOST if the outer holds of a re-entry are gone;
--       SCRIPT_WRONG_TYPE if the key holds a read-write lock, or a hash that is no
--       lock.
--
-- Idempotent, also when delayed: raises the hold count to the target instead of
-- incrementing it. A re-entry never shortens the lease.
local key, owner, target, lease = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local channel, client_channel, attempt = ARGV[4], ARGV[5], ARGV[6]
local ttl = redis.call('pttl', key)
local in_queue = attempt == 'again' or attempt == 'foreign'
if ttl == -2 and target == '1' and not in_queue then
--@include take_free_lock
elseif ttl == -2 and target == '1' then
--@include take_hold
    local failed = take_hold(key, owner, 0, '1', ttl, lease)
    if not failed then
--@include leave_queue
        leave_queue(channel, client_channel, attempt)
    end
    return failed
elseif ttl == -2 then
    return SCRIPT_OUTER_HOLD_LOST
end
local found = redis.call('hmget', key, owner, 'mode')
local has = tonumber(found[1] or nil)
if found[2] then
    return SCRIPT_WRONG_TYPE
elseif has then
--@include take_hold
    return take_hold(key, owner, has, target, ttl, lease)
elseif target ~= '1' then
    return SCRIPT_OUTER_HOLD_LOST
end

--@include is_lock
if attempt ~= 'called' and not is_lock(key) then
    return SCRIPT_WRONG_TYPE
elseif not client_channel then
    return ttl
end
--@include register
return {ttl, register(channel, client_channel, attempt)}
