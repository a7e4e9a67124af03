-- mutex_release: releases one hold; the last release frees the lock.
--
-- KEYS  1 lock hash
-- ARGV  1 owner field   2 target hold count   3 hold-off: ms for which the lock
--       stays taken after its last release, '0' frees it   4 channel   then the
--       publish commands (none: 'publish')
-- Returns if freed SCRIPT_FREED plus the number of clients woken (a hint);
--       SCRIPT_LEVEL_RELEASED; SCRIPT_NOT_HELD by this owner.
--
-- Idempotent: lowers the hold count to the target instead of decrementing it.
-- The sender knows whether SCRIPT_NOT_HELD means that its first request took
-- effect. Works at maxmemory. If the user may not publish, the lock is still
-- released, and waiters find out by polling.
--
-- The first client in the wait queue is notified even if no client listens to
-- the lock's channel: the listener may have left, or not have subscribed yet.
local owner, target, hold_off = ARGV[1], ARGV[2], ARGV[3]
local channel, PUBLISH_ARGS = ARGV[4], 5

if target ~= '0' or hold_off ~= '0' then
    local function first_waiter_channel()
        return channel
    end
--@include set_lower_count
--@include publish
--@include shorten_ttl
--@include retain_lock
end
--@include remove_owner

-- Fast path: at most one publish command, no receiver, no wait queue. Inlined
-- for speed.
local receivers
if #ARGV <= PUBLISH_ARGS then
    receivers = redis.pcall(ARGV[PUBLISH_ARGS] or 'publish', channel, '0')
    local queue = 'dibs_lock_waiters' .. (channel:match(':.*') or '')
    if receivers == 0 and redis.pcall('pttl', queue) == -2 then
        return SCRIPT_FREED
    end
    receivers = type(receivers) == 'number' and receivers or -1
end
--@include publish
receivers = receivers or publish(channel, '0')
if receivers >= 0 or receivers_unknown then
--@include notify_waiter
    receivers = notify_waiter(channel, KEYS[1], receivers, '2')
end
return SCRIPT_FREED + math.max(receivers, 0)
