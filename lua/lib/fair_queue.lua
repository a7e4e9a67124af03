-- fair_queue: liveness of the waiters of a fair lock.
--
-- Requires queue, scores, unresponsive, channel (prefix of a waiter's channel),
-- WAIT_ARG and GRACE_ARG (indices in ARGV), now, publish. Provides
-- OFFLINE_GRACE, MAX_AGE, wait_ms, notify_grace, notify(waiter),
-- score_of(waiter), grace_left_offline(waiter, score), evict(waiter).
--
-- Liveness rule. Only the server's clock counts. When the lock is free, its
-- waiters are notified in order until one receives the notification:
--
--   receivers  the waiter                    is evicted
--   0          is offline: no subscription   OFFLINE_GRACE ms after the first
--                                            notification it did not receive
--   > 0        must acquire, if it is first  after notify_grace ms without an
--                                            acquire, see fair_grace
--   -1         unknown                       when its score has passed
--
-- The waiters behind an offline one are notified at once, so that any number of
-- dead waiters costs one second in total. The score of a waiter is the time
-- until which it counts; each acquire by the waiter moves it. Offline waiters
-- are noted in the hash `unresponsive` and keep their score: other clients
-- (Redisson) evict a waiter with a lowered score, but this one may be about to
-- subscribe. The server may refuse a note at maxmemory.

local OFFLINE_GRACE = 1000
local MAX_AGE = 315360000000 -- ten years; no valid score is that far ahead
local wait_ms = math.min(tonumber(ARGV[WAIT_ARG]), MAX_AGE)
local notify_grace = math.min(tonumber(ARGV[GRACE_ARG]), wait_ms)

-- Notifies a waiter. Returns the number of receivers; -1 if unknown: the user
-- may not publish, or only the receivers at this node of a cluster are counted.
local function notify(waiter)
    local receivers = publish(channel .. waiter, '0')
    return receivers == 0 and receivers_unknown and -1 or receivers
end

-- Returns the score of a waiter, 0 if it has none. Corrects one that is too far
-- ahead.
local function score_of(waiter)
    local score = tonumber(redis.call('zscore', scores, waiter) or nil) or 0
    if score > now + MAX_AGE then
        score = now + wait_ms
        redis.pcall('zadd', scores, score, waiter)
    end
    return math.max(score, 0)
end

-- Returns the ms that an offline waiter has left; 0: it must be evicted. Other
-- clients change scores by multiples of wait_ms, so the remainder identifies
-- the waiter's last acquire.
local function grace_left_offline(waiter, score)
    local note = redis.call('hget', unresponsive, waiter) or ''
    local since, remainder = note:match('^(%d+) (.+)$')
    since = tonumber(since or 0)
    if remainder ~= tostring(score % wait_ms) or since > now or
        now - since >= 10 * OFFLINE_GRACE then
        redis.pcall('hset', unresponsive, waiter,
                    now .. ' ' .. score % wait_ms)
        redis.pcall('pexpire', unresponsive, 10 * OFFLINE_GRACE)
        return OFFLINE_GRACE
    end
    return math.max(since + OFFLINE_GRACE - now, 0)
end

local function evict(waiter)
    redis.call('lrem', queue, 1, waiter)
    redis.call('zrem', scores, waiter)
    redis.call('hdel', unresponsive, waiter, 'called ' .. waiter)
end
