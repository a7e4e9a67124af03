-- fair_acquire: take the lock in turn, or stand in the queue for it.
--
-- KEYS  1 lock hash   2 queue   3 scores: until when each waiter counts
--       4 unresponsive: who did not hear, or did not come, and since when
-- ARGV  1 owner   2 holds it will then have   3 lease in ms
--       4 W: how long a unresponsive waiter counts   5 channel of a waiter, less its
--       owner   6 '1' to wait in the queue, '0' to go away again   7 ms that
--       the first in line has to ask in when it heard   then the commands to
--       publish with; none = 'publish'
-- Gives nil when taken; >= 0 when not: come back after so many ms at the
--       latest; -3 when the outer holds of a re-entry are gone; -6 when the
--       key holds a read-write lock, or a hash that is no lock.
--
-- The server's clock counts, nobody else's. A waiter that asks proves that it
-- lives and pushes its score back, beyond anything that another client may take
-- off it meanwhile. A waiter that does not hear when it is called, and a second
-- later still does not, is dead, and goes. A waiter that hears and yet does not
-- ask is stopped, and goes after five seconds or so. Twice is harmless.
local lock, queue, scores, unresponsive = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, target, lease = ARGV[1], ARGV[2], ARGV[3]
local channel, stay, PUBLISH_ARGS = ARGV[5], ARGV[6] == '1', 8
local AGES = 315360000000 -- ten years of ms: no sane time is that far off
local wait = math.min(tonumber(ARGV[4]), AGES)
local called = math.min(tonumber(ARGV[7]), wait)
local BUSY = 2000 -- ms between two questions of the first in line
local NEAR = 100  -- places that look for the end of the lease, too
local FAR = 256   -- places that are counted exactly

-- Nearly always nobody has it and nobody waits.
if target == '1' and redis.call('exists', lock, queue, scores, unresponsive) == 0 then
--@include take_free_lock
end
--@include take_hold
--@include is_lock
--@include publish
--@include fair_queue

local left = redis.call('pttl', lock)
if left ~= -2 then
    local found = redis.call('hmget', lock, owner, 'mode')
    if found[2] then
        return -6
    elseif tonumber(found[1] or nil) then
        return take_hold(lock, owner, tonumber(found[1]), target, left, lease)
    elseif target == '1' and not is_lock(lock) then
        return -6
    end
end
if target ~= '1' then
    return -3
end

-- The lock is free: whose turn is it? Who is called and does not hear gets a
-- second, who had that already goes. Without the right to call nobody knows who
-- hears; then only the score counts.
local sleep
if left == -2 then
    local place, begun, client = 0, 0, nil
    for _ = 1, 256 do
        local two = redis.call('lrange', queue, place, place + 1)
        local who = two[1]
        if (not who or who == owner) and place == 0 then
            if who == owner then
                redis.call('lpop', queue)
                who = two[2]
            end
            while who == owner do
                redis.call('lpop', queue)
                who = redis.call('lindex', queue, 0)
            end
            if who then
                redis.call('zrem', scores, owner)
                redis.call('zadd', scores,
                           now + math.min(tonumber(lease), AGES) + wait, who)
            else
                redis.call('del', scores, unresponsive)
            end
            return take_hold(lock, owner, 0, target, left, lease)
        elseif not who or who == owner or place == 128 then
            break
        end
        local heard = call(who)
        local score = score_of(who)
        local mine = 0 -- ms that it still has without asking
        if heard < 0 then
            mine = score > now and who:find(UUID) and -1 or 0
        elseif heard == 0 then
            mine = score > now and grace_left_offline(who, score) or 0
        elseif place > 0 then
            if score <= now then
                redis.call('zadd', scores, now + called, who)
            end
            break -- those before it have their second
        else
            begun = who:sub(1, 36) == client and called - SOON or 0
            mine = grace_left_notified(who, score, stay or two[2], begun)
        end
        if mine == 0 then
            evict(who)
            -- If its process is stopped, so are the others of its client.
            client = heard > 0 and who:sub(1, 36) or client
        elseif heard == 0 then
            sleep = sleep or mine + 1
            place = place + 1
        else
            sleep = heard > 0 and math.min(SOON, mine + 1, called / 3) or SOON
            break
        end
    end
    sleep = sleep or SOON
end
if not stay then
    return sleep or left
end

-- Into the queue, or once more: here I am. An entry without a score is what
-- somebody left behind, not a place.
local known = redis.call('zscore', scores, owner)
local place = redis.call('lpos', queue, owner, 'MAXLEN', FAR)
local length = known and redis.call('llen', queue)
if known and not place and length > FAR then
    place = length
elseif not known and place then
    redis.call('lrem', queue, 0, owner)
    place = false
end
if not place then
    length = redis.call('rpush', queue, owner)
    place = length - 1
end
local horizon = now + math.min(math.max(left, 0), AGES)
local mine = math.min(horizon + wait * (place + 1), now + AGES)
redis.call('zadd', scores, mine, owner)
-- Nothing stays for ever, and both end together, behind the last score. One
-- that is no sane time would keep them, so it is put right.
local last
for _ = 1, 8 do
    local top = redis.call('zrange', scores, -1, -1, 'WITHSCORES')
    last = tonumber(top[2]) or 0
    if last <= now + AGES then
        break
    end
    redis.call('zadd', scores, now + wait, top[1])
end
local over = math.max(
    horizon + math.min(tonumber(lease), AGES) + wait * (length + 4),
    math.ceil(math.min(last, now + AGES)) + wait)
over = math.min(over, now + 4 * AGES)
redis.call('pexpireat', queue, over)
redis.call('pexpireat', scores, over)

if not sleep then
    sleep = math.min(place < 2 and BUSY or BUSY * (place + 1), wait / 3)
    if place == 0 and left >= 0 then
        sleep = math.min(sleep, left + 1)
    elseif place < NEAR and left >= 0 then
        sleep = math.min(sleep, math.max(left + 1, BUSY))
    end
end
return math.floor(sleep)
