-- fair_acquire: acquires the lock in queue order, or enqueues the owner.
--
-- KEYS  1 lock hash   2 queue   3 scores: until when each waiter counts
--       4 unresponsive: notes on waiters that did not respond
-- ARGV  1 owner   2 target hold count   3 lease in ms   4 wait_ms: how long a
--       waiter counts without an acquire   5 prefix of a waiter's channel, its
--       owner follows   6 '1' to enqueue, '0' to try only   7 notify_grace: ms
--       that a notified first waiter has to send an acquire   then the publish
--       commands (none: 'publish')
-- Returns nil if acquired; if busy, ms after which to retry at the latest;
--       SCRIPT_OUTER_HOLD_LOST if the outer holds of a re-entry are gone;
--       SCRIPT_WRONG_TYPE if the key holds a read-write lock, or a hash that is no
--       lock.
--
-- Idempotent. fair_queue describes how dead waiters are evicted. An acquire
-- moves the score of its waiter further ahead than other clients may lower it
-- in the meantime.
local lock, queue, scores, unresponsive = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, target, lease = ARGV[1], ARGV[2], ARGV[3]

-- Fast path: no holder and no waiter.
if target == '1' and
    redis.call('exists', lock, queue, scores, unresponsive) == 0 then
--@include take_free_lock
end

local channel, enqueue, PUBLISH_ARGS = ARGV[5], ARGV[6] == '1', 8
local WAIT_ARG, GRACE_ARG = 4, 7
local POLL_MS = 2000     -- ms between two acquires of the first waiter
local NEAR_PLACES = 100  -- waiters that also poll at the end of the lease
local EXACT_PLACES = 256 -- places that are counted exactly
--@include now
--@include take_hold
--@include is_lock
--@include publish
--@include fair_queue
--@include fair_grace

-- The lock is free, and this owner is first in the queue, or the queue is
-- empty: acquires the lock.
local function acquire_in_turn(first, second)
    local waiter = first
    if waiter == owner then
        redis.call('lpop', queue)
        waiter = second
    end
    while waiter == owner do -- it was in the queue more than once
        redis.call('lpop', queue)
        waiter = redis.call('lindex', queue, 0)
    end
    if waiter then
        redis.call('zrem', scores, owner)
        redis.call('zadd', scores,
                   now + math.min(tonumber(lease), MAX_AGE) + wait_ms, waiter)
    else
        redis.call('del', scores, unresponsive)
    end
    return take_hold(lock, owner, 0, target, -2, lease)
end

-- The lock is free: notifies the waiters before this owner, and evicts dead
-- ones. Returns nil, first and second waiter if it is this owner's turn; else
-- ms after which to retry.
local function notify_predecessors()
    local place, evicted_client, retry_ms = 0, nil, nil
    for _ = 1, 256 do
        local two = redis.call('lrange', queue, place, place + 1)
        local waiter = two[1]
        if (not waiter or waiter == owner) and place == 0 then
            return nil, waiter, two[2]
        elseif not waiter or waiter == owner or place == 128 then
            break
        end
        local receivers = notify(waiter)
        local score = score_of(waiter)
        local left -- ms that this waiter has without an acquire
        if receivers < 0 then
            left = score > now and waiter:find(UUID) and -1 or 0
        elseif receivers == 0 then
            left = score > now and grace_left_offline(waiter, score) or 0
        elseif place > 0 then
            if score <= now then
                redis.call('zadd', scores, now + notify_grace, waiter)
            end
            break -- the offline waiters before it have their grace
        else
            left = grace_left_notified(waiter, score, enqueue or two[2],
                                       initially_spent(waiter, evicted_client))
        end
        if left == 0 then
            evict(waiter)
            evicted_client = receivers > 0 and waiter:sub(1, 36) or
                evicted_client
        elseif receivers < 0 then
            return OFFLINE_GRACE
        elseif receivers > 0 then
            return math.min(OFFLINE_GRACE, left + 1, notify_grace / 3)
        else
            retry_ms = retry_ms or left + 1
            place = place + 1
        end
    end
    return retry_ms or OFFLINE_GRACE
end

-- Appends this owner to the queue unless it is there. Returns its place and the
-- length of the queue. An entry without a score is left over: it has no place.
local function join_queue()
    local score = redis.call('zscore', scores, owner)
    local place = redis.call('lpos', queue, owner, 'MAXLEN', EXACT_PLACES)
    local length = score and redis.call('llen', queue)
    if score and not place and length > EXACT_PLACES then
        place = length
    elseif not score and place then
        redis.call('lrem', queue, 0, owner)
        place = false
    end
    if not place then
        length = redis.call('rpush', queue, owner)
        place = length - 1
    end
    return place, length
end

-- Sets this owner's score, and the expiry of queue and scores: both end
-- together, after the last score. A last score too far ahead would keep them,
-- so it is corrected.
local function set_score(place, length, ttl)
    local lock_end = now + math.min(math.max(ttl, 0), MAX_AGE)
    local score = math.min(lock_end + wait_ms * (place + 1), now + MAX_AGE)
    redis.call('zadd', scores, score, owner)
    local last
    for _ = 1, 8 do
        local top = redis.call('zrange', scores, -1, -1, 'WITHSCORES')
        last = tonumber(top[2]) or 0
        if last <= now + MAX_AGE then
            break
        end
        redis.call('zadd', scores, now + wait_ms, top[1])
    end
    local expire_at = math.max(
        lock_end + math.min(tonumber(lease), MAX_AGE) + wait_ms * (length + 4),
        math.ceil(math.min(last, now + MAX_AGE)) + wait_ms)
    expire_at = math.min(expire_at, now + 4 * MAX_AGE)
    redis.call('pexpireat', queue, expire_at)
    redis.call('pexpireat', scores, expire_at)
end

-- Returns after how many ms the waiter at this place polls.
local function poll_ms(place, ttl)
    local ms = math.min(place < 2 and POLL_MS or POLL_MS * (place + 1),
                        wait_ms / 3)
    if place == 0 and ttl >= 0 then
        return math.min(ms, ttl + 1)
    elseif place < NEAR_PLACES and ttl >= 0 then
        return math.min(ms, math.max(ttl + 1, POLL_MS))
    end
    return ms
end

local ttl = redis.call('pttl', lock)
if ttl ~= -2 then
    local found = redis.call('hmget', lock, owner, 'mode')
    if found[2] then
        return SCRIPT_WRONG_TYPE
    elseif tonumber(found[1] or nil) then
        return take_hold(lock, owner, tonumber(found[1]), target, ttl, lease)
    elseif target == '1' and not is_lock(lock) then
        return SCRIPT_WRONG_TYPE
    end
end
if target ~= '1' then
    return SCRIPT_OUTER_HOLD_LOST
end

local retry_ms
if ttl == -2 then
    local first, second
    retry_ms, first, second = notify_predecessors()
    if not retry_ms then
        return acquire_in_turn(first, second)
    end
end
if not enqueue then
    return retry_ms or ttl
end
local place, length = join_queue()
set_score(place, length, ttl)
return math.floor(retry_ms or poll_ms(place, ttl))
