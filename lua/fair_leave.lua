-- fair_leave: take an owner out of the queue, and if need be off the lock.
--
-- KEYS  1 lock hash   2 queue   3 scores   4 silent: who did not hear, or did
--       not come, and since when
-- ARGV  1 owner, '' = only to look after the queue   2 channel of a waiter,
--       less its owner   3 '1' to end its hold as well   4 W   5 ms that the
--       first in line has to ask in when it heard   then the commands to
--       publish with; none = 'publish'
-- Gives 1 when a hold was ended; else 0, or 2 when the lock is free and
--       somebody was called: look again in a second; -6 when the key holds a
--       hash that is no lock.
--
-- Who leaves may have been the one who was called. So if the lock is free then,
-- the next in line is called, as a release does it, and goes as in
-- fair_acquire. Twice is harmless; it names the owner it means, so one that
-- comes late does a stranger no harm.
local lock, queue, scores, silent = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local AGES = 315360000000 -- ten years of ms: no sane time is that far off
local owner, channel = ARGV[1], ARGV[2]
local wait = math.min(tonumber(ARGV[4]), AGES)
local called = math.min(tonumber(ARGV[5]), wait)
local SOON = 1000
local ended = 0

-- Calls a waiter: how many heard, or -1 if nobody can tell. That is so without
-- the right to publish; and where a message goes to all nodes of a cluster, for
-- only those who listen at this one are counted.
local function call(who)
    local most = -1
    for i = 6, math.max(6, #ARGV) do
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

if ARGV[3] == '1' and owner ~= '' then
    local found = redis.call('hmget', lock, owner, 'mode')
    if found[2] then
        return redis.error_reply('WRONGTYPE the key holds a read-write lock')
    elseif not is_lock(lock) then
        ended = -6
    elseif found[1] then
        redis.call('del', lock)
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

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Nobody heard the call. Had it its second already? What is left of a score
-- after whole Ws tells one stay in the queue from the next.
local function dead(who, score)
    local noted = redis.call('hget', silent, who) or ''
    local since, stay = noted:match('^(%d+) (.+)$')
    since = tonumber(since or 0)
    if stay ~= tostring(score % wait) or since > now or
        now - since >= 10 * SOON then
        redis.pcall('hset', silent, who, now .. ' ' .. score % wait)
        redis.pcall('pexpire', silent, 10 * SOON)
        return false
    end
    return now - since >= SOON
end

-- Until when a waiter counts; 0 without a score. What is no sane time, for it
-- is too far off, is put right.
local function score_of(who)
    local score = tonumber(redis.call('zscore', scores, who) or nil) or 0
    if score > now + AGES then
        score = now + wait
        redis.pcall('zadd', scores, score, who)
    end
    return math.max(score, 0)
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
        redis.pcall('zadd', scores, score, who)
    end
    if spent >= called then
        return 0
    end
    redis.pcall('hset', silent, 'called ' .. who,
                now .. ' ' .. spent .. ' ' .. score)
    redis.pcall('pexpire', silent, called + 10 * SOON)
    return called - spent
end

local place, client = 0, nil
for _ = 1, 128 do
    local who = redis.call('lindex', queue, place)
    if not who and place == 0 then
        redis.call('del', scores, silent)
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
        local behind = redis.call('llen', queue) > 1
        gone = patience(who, score, behind, begun) == 0
        -- If its process is stopped, so are the others of its client.
        client = gone and who:sub(1, 36) or client
    else
        gone = dead(who, score)
    end
    if gone then
        redis.call('lrem', queue, 1, who)
        redis.call('zrem', scores, who)
        redis.call('hdel', silent, who, 'called ' .. who)
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
