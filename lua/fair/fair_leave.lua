-- fair_leave: removes an owner from the queue; optionally ends its hold.
--
-- KEYS  1 lock hash   2 queue   3 scores   4 unresponsive: notes on waiters
--       that did not respond
-- ARGV  1 owner, '' = only check the queue   2 prefix of a waiter's channel
--       3 '1' to end its hold as well   4 wait_ms   5 notify_grace, as
--       fair_acquire   then the publish commands (none: 'publish')
-- Returns SCRIPT_ENDED if a hold was ended; else SCRIPT_WAITER_WOKEN if the
--       lock is free and a waiter was notified: check the queue again in a
--       second; else 0; SCRIPT_WRONG_TYPE if the key holds a hash that is no lock.
--
-- The owner may have been notified just before it leaves. So if the lock is
-- free, the next waiter is notified, and dead waiters are evicted as fair_queue
-- describes. Works at maxmemory. Idempotent. The owner is named, so a delayed
-- request cannot end another owner's hold.
local lock, queue, scores, unresponsive = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, channel, PUBLISH_ARGS = ARGV[1], ARGV[2], 6
local WAIT_ARG, GRACE_ARG = 4, 5
local result = 0
--@include is_lock
--@include publish
--@include drop_value

if ARGV[3] == '1' and owner ~= '' then
    local found = redis.call('hmget', lock, owner, 'mode')
    if found[2] then
        return redis.error_reply('WRONGTYPE the key holds a read-write lock')
    elseif not is_lock(lock) then
        result = SCRIPT_WRONG_TYPE
    elseif found[1] then
        redis.call('del', lock)
        drop_value(channel:sub(1, -2), owner)
        result = SCRIPT_ENDED
    end
end
if owner ~= '' then
    redis.call('zrem', scores, owner)
    redis.call('lrem', queue, 0, owner)
end
if redis.call('exists', lock) == 1 then
    return result
end

--@include now
--@include fair_queue
--@include fair_grace
-- Redis checks for OOM only before a script's first write: a no-op write.
redis.pcall('hdel', unresponsive, '')
local place, evicted_client = 0, nil
for _ = 1, 128 do
    local two = redis.call('lrange', queue, place, place + 1)
    local waiter = two[1]
    if not waiter and place == 0 then
        redis.call('del', scores, unresponsive)
        return result
    elseif not waiter then
        break
    end
    local receivers = notify(waiter)
    if receivers < 0 then
        return result
    elseif receivers > 0 and place > 0 then
        return result == SCRIPT_ENDED and result or SCRIPT_WAITER_WOKEN
    end
    local score = score_of(waiter)
    local left
    if receivers > 0 then
        left = grace_left_notified(waiter, score, two[2],
                                   initially_spent(waiter, evicted_client))
    else
        left = grace_left_offline(waiter, score)
    end
    if left == 0 then
        evict(waiter)
        evicted_client = receivers > 0 and waiter:sub(1, 36) or evicted_client
    elseif receivers > 0 then
        break
    else
        place = place + 1
    end
end
if place == 128 then
    notify(redis.call('lindex', queue, -1))
end
return result == SCRIPT_ENDED and result or SCRIPT_WAITER_WOKEN
