-- fair_release: releases one hold; the last release frees the lock and notifies
-- the first waiter.
--
-- KEYS  1 lock hash   2 queue   3 scores   4 unresponsive: notes on waiters
--       that did not respond
-- ARGV  1 owner   2 target hold count   3 hold-off: ms for which the lock stays
--       taken after its last release, '0' frees it   4 wait_ms   5 prefix of a
--       waiter's channel   6 notify_grace, as fair_acquire   then the publish
--       commands (none: 'publish')
-- Returns if freed SCRIPT_FREED plus the number of receivers; if freed, but the
--       first waiter is offline, SCRIPT_NO_LISTENER: the caller must send
--       fair_leave in a second; SCRIPT_LEVEL_RELEASED; SCRIPT_NOT_HELD by this
--       owner.
--
-- fair_queue describes how offline waiters are treated. If very many are
-- offline, the last one is notified: it came last, so it is alive if any is,
-- and evicts the others. The score of a notified waiter is marked by a fraction
-- of a half if another one is behind it (see fair_grace); a single waiter gets
-- at least wait_ms. Idempotent. Works at maxmemory.
local queue, scores, unresponsive = KEYS[2], KEYS[3], KEYS[4]
local owner, target, hold_off = ARGV[1], ARGV[2], ARGV[3]
local channel, PUBLISH_ARGS = ARGV[5], 7
local WAIT_ARG, GRACE_ARG = 4, 6

if target ~= '0' or hold_off ~= '0' then
    local function first_waiter_channel()
        local waiter = redis.call('lindex', queue, 0)
        return waiter and channel .. waiter
    end
--@include set_lower_count
--@include publish
--@include shorten_ttl
--@include retain_lock
end
--@include remove_owner
local two = redis.call('lrange', queue, 0, 1)
if not two[1] then
    return SCRIPT_FREED
end
--@include now
--@include publish
--@include fair_queue

local place = 0
for _ = 1, 128 do
    local waiter = two[1]
    if not waiter then
        return place == 0 and SCRIPT_FREED or SCRIPT_NO_LISTENER
    end
    local receivers = notify(waiter)
    if receivers < 0 then
        return SCRIPT_FREED
    elseif receivers > 0 and place == 0 and two[2] then
        redis.pcall('zadd', scores, now + notify_grace + 0.5, waiter)
        return SCRIPT_FREED + receivers
    end
    local score = score_of(waiter)
    if receivers > 0 then
        if score < now + wait_ms then
            redis.pcall('zadd', scores, now + wait_ms, waiter)
        end
        return place == 0 and SCRIPT_FREED + receivers or SCRIPT_NO_LISTENER
    end
    if grace_left_offline(waiter, score) == 0 then
        evict(waiter)
    else
        place = place + 1
    end
    two = redis.call('lrange', queue, place, place + 1)
end
notify(redis.call('lindex', queue, -1))
return SCRIPT_NO_LISTENER
