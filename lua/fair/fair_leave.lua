-- fair_leave: take an owner out of the queue, and if need be off the lock.
--
-- KEYS  1 lock hash   2 queue   3 scores   4 unresponsive: who did not hear, or did
--       not come, and since when
-- ARGV  1 owner, '' = only to look after the queue   2 channel of a waiter,
--       less its owner   3 '1' to end its hold as well   4 W   5 ms that the
--       first in line has to ask in when it heard   then the commands to
--       publish with; none = 'publish'
-- Gives 1 when a hold was ended; else 0, or 2 when the lock is free and
--       somebody was called: look again in a second; -6 when the key holds a
--       hash that is no lock.
--
-- The owner who leaves may have been the one who was called. So if the lock is
-- free then, the next in line is called, as a release does it, and waiters go
-- as in fair_acquire, also on a full server. Twice is harmless. The script
-- names the owner it means, so one that comes late does a stranger no harm.
local lock, queue, scores, unresponsive = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local AGES = 315360000000 -- ten years of ms: no sane time is that far off
local owner, channel, PUBLISH_ARGS = ARGV[1], ARGV[2], 6
local wait = math.min(tonumber(ARGV[4]), AGES)
local called = math.min(tonumber(ARGV[5]), wait)
local ended = 0
--@include is_lock
--@include publish
--@include drop_value

if ARGV[3] == '1' and owner ~= '' then
    local found = redis.call('hmget', lock, owner, 'mode')
    if found[2] then
        return redis.error_reply('WRONGTYPE the key holds a read-write lock')
    elseif not is_lock(lock) then
        ended = -6
    elseif found[1] then
        redis.call('del', lock)
        drop_value(channel:sub(1, -2), owner)
        ended = 1
    end
end
if owner ~= '' then
    redis.call('zrem', scores, owner)
    redis.call('lrem', queue, 0, owner)
end
if redis.call('exists', lock) == 1 then
    return ended
end

--@include fair_queue
redis.pcall('hdel', unresponsive, '') -- a full server lets a script go on that wrote
local place, client = 0, nil
for _ = 1, 128 do
    local two = redis.call('lrange', queue, place, place + 1)
    local who = two[1]
    if not who and place == 0 then
        redis.call('del', scores, unresponsive)
        return ended
    elseif not who then
        break
    end
    local heard = call(who)
    if heard < 0 or (heard > 0 and place > 0) then
        return (heard < 0 or ended == 1) and ended or 2
    end
    local score = score_of(who)
    local gone
    if heard > 0 then
        local begun = who:sub(1, 36) == client and called - SOON or 0
        gone = grace_left_notified(who, score, two[2], begun) == 0
        -- If its process is stopped, so are the others of its client.
        client = gone and who:sub(1, 36) or client
    else
        gone = grace_left_offline(who, score) == 0
    end
    if gone then
        evict(who)
    elseif heard > 0 then
        break
    else
        place = place + 1
    end
end
if place == 128 then
    call(redis.call('lindex', queue, -1))
end
return ended == 1 and 1 or 2
