-- fair_grace: the time that a notified first waiter of a fair lock has.
--
-- Requires fair_queue and what that requires. Provides
-- grace_left_notified(waiter, score, has_next, initial),
-- initially_spent(waiter, evicted_client).

-- Returns the ms that the first waiter, which received the notification, has
-- left to send an acquire; 0: it must be evicted. Each call adds the time since
-- the previous one, but at most a third of the grace: a server that was
-- suspended does not cost the waiter its place. The note 'called WAITER' has
-- the time of the previous call, the ms spent, and the score; it holds while
-- the score stays the same, that is, until the waiter sends an acquire. For
-- other clients the score is set to the end of the grace, with a fraction of a
-- half as a mark; not if no waiter is behind it, because that one may compute
-- its own score from the last.
local function grace_left_notified(waiter, score, has_next, initial)
    local note = redis.call('hget', unresponsive, 'called ' .. waiter) or ''
    local last, spent, noted_score = note:match('^(%d+) (%d+) (.+)$')
    local is_marked = score % 1 ~= 0 and score - now <= notify_grace
    if noted_score == tostring(score) then
        local step = math.min(now - last, math.ceil(notify_grace / 3))
        spent = spent + math.max(step, 0)
    else
        spent = is_marked and
            math.min(notify_grace - (score - now), notify_grace / 3) or 0
        spent = math.max(math.floor(spent), initial)
    end
    if not is_marked and (has_next or score < now + notify_grace) then
        score = now + notify_grace + (has_next and 0.5 or 0)
        redis.pcall('zadd', scores, score, waiter)
    end
    if spent >= notify_grace then
        return 0
    end
    redis.pcall('hset', unresponsive, 'called ' .. waiter,
                now .. ' ' .. spent .. ' ' .. score)
    redis.pcall('pexpire', unresponsive, notify_grace + 10 * OFFLINE_GRACE)
    return notify_grace - spent
end

-- Returns the grace that a waiter has spent before its first notification: all
-- but a second if another waiter of its client was evicted. If the process is
-- suspended, all of its waiters are.
local function initially_spent(waiter, evicted_client)
    return waiter:sub(1, 36) == evicted_client and
        notify_grace - OFFLINE_GRACE or 0
end
