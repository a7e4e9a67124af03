-- fair_queue: which waiters of the fair lock live.
--
-- Needs queue, scores, unresponsive, channel, wait, called, AGES, and publish. Asks
-- the server's clock where it is included. Gives now, SOON, call(who),
-- score_of(who), grace_left_offline(who, score), grace_left_notified(who, score, behind, begun),
-- evict(who).
--
-- The second of a waiter that does not hear is noted apart from its score: a
-- score taken down would have other clients throw out a waiter that just has
-- not begun to listen. A full server may refuse a note.

local SOON = 1000 -- ms that a waiter has who did not hear
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Calls a waiter: how many heard, or -1 if nobody can tell. That is so without
-- the right to publish. It is also so where a message goes to all nodes of a
-- cluster: only those who listen at this one are counted.
local function call(who)
    local heard = publish(channel .. who, '0')
    return heard == 0 and ARGV[#ARGV] == 'publish' and -1 or heard
end

-- Until when a waiter counts; 0 without a score. A score that is too far off is
-- no sane time, and is put right.
local function score_of(who)
    local score = tonumber(redis.call('zscore', scores, who) or nil) or 0
    if score > now + AGES then
        score = now + wait
        redis.pcall('zadd', scores, score, who)
    end
    return math.max(score, 0)
end

-- Nobody heard the call. The ms that the waiter still has; 0: it had them, and
-- goes. The remainder of a score by W tells one stay in the queue from the
-- next.
local function grace_left_offline(who, score)
    local noted = redis.call('hget', unresponsive, who) or ''
    local since, stay = noted:match('^(%d+) (.+)$')
    since = tonumber(since or 0)
    if stay ~= tostring(score % wait) or since > now or
        now - since >= 10 * SOON then
        redis.pcall('hset', unresponsive, who, now .. ' ' .. score % wait)
        redis.pcall('pexpire', unresponsive, 10 * SOON)
        return SOON
    end
    return math.max(since + SOON - now, 0)
end

-- The first in line heard the call. The ms that it still has to ask in; 0: it
-- had them, and goes. Time counts in steps of a third at most, each between two
-- looks at it. So a server that stood still does not cost the waiter its place.
-- What it has spent is noted for as long as it stays; `begun` is what it has
-- spent before the first look. For other clients its score has the same end,
-- with a half as a mark; but not if nobody is behind it: the next one may
-- reckon from the last score.
local function grace_left_notified(who, score, behind, begun)
    local noted = redis.call('hget', unresponsive, 'called ' .. who) or ''
    local last, spent, stay = noted:match('^(%d+) (%d+) (.+)$')
    local mark = score % 1 ~= 0 and score - now <= called
    if stay == tostring(score) then
        local step = math.min(now - last, math.ceil(called / 3))
        spent = spent + math.max(step, 0)
    else
        spent = mark and math.min(called - (score - now), called / 3) or 0
        spent = math.max(math.floor(spent), begun)
    end
    if not mark and (behind or score < now + called) then
        score = now + called + (behind and 0.5 or 0)
        redis.pcall('zadd', scores, score, who)
    end
    if spent >= called then
        return 0
    end
    redis.pcall('hset', unresponsive, 'called ' .. who,
                now .. ' ' .. spent .. ' ' .. score)
    redis.pcall('pexpire', unresponsive, called + 10 * SOON)
    return called - spent
end

local function evict(who)
    redis.call('lrem', queue, 1, who)
    redis.call('zrem', scores, who)
    redis.call('hdel', unresponsive, who, 'called ' .. who)
end
