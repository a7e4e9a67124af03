-- fair_acquire: take the lock in turn, or stand in the queue for it.
--
-- KEYS  1 lock hash   2 queue   3 scores: until when each waiter counts
--       4 silent: who did not hear, or did not come, and since when
-- ARGV  1 owner   2 holds it will then have   3 lease in ms
--       4 W: how long a silent waiter counts   5 channel of a waiter, less its
--       owner   6 '1' to wait in the queue, '0' to go away again   7 ms that
--       the first in line has to ask in when it heard   then the commands to
--       publish with; none = 'publish'
-- Gives nil when taken; >= 0 when not: come back after so many ms at the
--       latest; -3 when the outer holds of a re-entry are gone; -6 when the
--       key holds a read-write lock, or a hash that is no lock.
--
-- The server's clock counts, nobody else's. A waiter that asks proves that it
-- lives and pushes its score back, beyond anything that another client may take
-- off it meanwhile. One that does not hear when it is called, and a second
-- later still does not, is dead, and goes. One that hears and yet does not ask
-- is stopped, and goes after five seconds or so. That second is noted apart: a
-- score taken down would have other clients throw out a waiter that just has
-- not begun to listen. Twice is harmless.
local lock, queue, scores, silent = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, target, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local channel, stay = ARGV[5], ARGV[6] == '1'
local AGES = 315360000000 -- ten years of ms: no sane time is that far off
local wait = math.min(tonumber(ARGV[4]), AGES)
local called = math.min(tonumber(ARGV[7]), wait)
local SOON = 1000 -- ms that a waiter has who did not hear
local BUSY = 2000 -- ms between two questions of the first in line
local NEAR = 100  -- places that look for the end of the lease, too
local FAR = 256   -- places that are counted exactly

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local left = redis.call('pttl', lock)

-- Calls a waiter: how many heard, or -1 if nobody can tell. That is so without
-- the right to publish; and where a message goes to all nodes of a cluster, for
-- only those who listen at this one are counted.
local function call(who)
    local most = -1
    for i = 8, math.max(8, #ARGV) do
        local heard = redis.pcall(ARGV[i] or 'publish', channel .. who, '0')
        most = math.max(most, type(heard) == 'number' and heard or -1)
    end
    return most == 0 and ARGV[#ARGV] == 'publish' and -1 or most
end

-- An owner is a UUID, a colon and a number; a transaction puts more behind it.
local UUID = '^%x+%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x+:%-?%d'

-- Is the hash a lock? A lock has owners with a count in it and nothing else.
-- What an application keeps there is left alone. Who may not look takes it for
-- one.
local function is_lock(hash)
    local count = redis.pcall('hlen', hash)
    if type(count) == 'table' or count > 32 then
        return type(count) == 'table'
    end
    local all = redis.pcall('hgetall', hash)
    for i = 1, #all, 2 do
        if not all[i]:find(UUID) or all[i]:sub(37, 37) ~= ':' or
            not all[i + 1]:find('^[1-9]%d*$') then
            return false
        end
    end
    return true
end

local function hold(has)
    if has < tonumber(target) then
        redis.call('hset', lock, owner, target)
    end
    if left < lease then
        local done = redis.pcall('pexpire', lock, ARGV[3])
        if type(done) == 'table' then
            if target == '1' then
                redis.call('del', lock)
            else
                redis.call('hset', lock, owner, tonumber(target) - 1)
            end
            return {err = done.err .. ' (pexpire)'}
        end
    elseif has >= tonumber(target) then
        redis.pcall('pexpire', lock, left) -- so that a WAIT counts it
    end
    return false
end

if left ~= -2 then
    local found = redis.call('hmget', lock, owner, 'mode')
    if found[2] then
        return -6
    elseif tonumber(found[1] or nil) then
        return hold(tonumber(found[1]))
    elseif target == '1' and not is_lock(lock) then
        return -6
    end
end
if target ~= '1' then
    return -3
end

-- Until when a waiter counts; 0 without a score. What is no sane time, for it
-- is too far off, is put right.
local function score_of(who)
    local score = tonumber(redis.call('zscore', scores, who) or nil) or 0
    if score > now + AGES then
        score = now + wait
        redis.call('zadd', scores, score, who)
    end
    return math.max(score, 0)
end

-- Nobody heard the call. The ms that it still has; 0: it had them, and goes.
-- What is left of a score after whole Ws tells one stay in the queue from the
-- next.
local function rest(who, score)
    local noted = redis.call('hget', silent, who) or ''
    local since, stay = noted:match('^(%d+) (.+)$')
    since = tonumber(since or 0)
    if stay ~= tostring(score % wait) or since > now or
        now - since >= 10 * SOON then
        redis.call('hset', silent, who, now .. ' ' .. score % wait)
        redis.call('pexpire', silent, 10 * SOON)
        return SOON
    elseif now - since < SOON then
        return since + SOON - now
    end
    redis.call('hdel', silent, who)
    return 0
end

-- The first in line heard the call. The ms that it still has to ask in; 0: it
-- had them, and goes. Time counts in steps of a third at most, each between two
-- looks at it, so that a server that stood still does not cost it its place.
-- How far it is, is noted for as long as it stays; `begun` is what it has spent
-- before the first look. For others than us, its score says the same, with a
-- half as a mark; but not if nobody is behind it: who comes next may reckon
-- from the last score.
local function patience(who, score, behind, begun)
    local noted = redis.call('hget', silent, 'called ' .. who) or ''
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
        redis.call('zadd', scores, score, who)
    end
    if spent >= called then
        return 0
    end
    redis.call('hset', silent, 'called ' .. who,
                now .. ' ' .. spent .. ' ' .. score)
    redis.call('pexpire', silent, called + 10 * SOON)
    return called - spent
end

-- The lock is free: whose turn is it? Who is called and does not hear gets a
-- second, who had that already goes. Without the right to call nobody knows who
-- hears; then only the score counts.
local sleep
if left == -2 then
    local place, begun, client = 0, 0, nil
    for _ = 1, 256 do
        local who = redis.call('lindex', queue, place)
        if (not who or who == owner) and place == 0 then
            while who == owner do
                redis.call('lpop', queue)
                who = redis.call('lindex', queue, 0)
            end
            if who then
                redis.call('zrem', scores, owner)
                redis.call('zadd', scores,
                           now + math.min(lease, AGES) + wait, who)
            else
                redis.call('del', scores, silent)
            end
            return hold(0)
        elseif not who or who == owner or place == 128 then
            break
        end
        local heard = call(who)
        local score = score_of(who)
        local mine = 0 -- ms that it still has without asking
        if heard < 0 then
            mine = score > now and who:find(UUID) and -1 or 0
        elseif heard == 0 then
            mine = score > now and rest(who, score) or 0
        elseif place > 0 then
            if score <= now then
                redis.call('zadd', scores, now + called, who)
            end
            break -- those before it have their second
        else
            begun = who:sub(1, 36) == client and called - SOON or 0
            mine = patience(who, score, stay or
                            redis.call('llen', queue) > 1, begun)
        end
        if mine == 0 then
            redis.call('lrem', queue, 1, who)
            redis.call('zrem', scores, who)
            redis.call('hdel', silent, who, 'called ' .. who)
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
local length = redis.call('llen', queue)
local known = redis.call('zscore', scores, owner)
local place = redis.call('lpos', queue, owner, 'MAXLEN', FAR)
if known and not place and length > FAR then
    place = length
elseif not known and place then
    length = length - redis.call('lrem', queue, 0, owner)
    place = false
end
if not place then
    redis.call('rpush', queue, owner)
    place = length
    length = length + 1
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
local over = math.max(horizon + math.min(lease, AGES) + wait * (length + 4),
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
