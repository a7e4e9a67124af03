-- fair_release: give back one hold; the last one frees the lock and calls the
-- next in line.
--
-- KEYS  1 lock hash   2 queue   3 scores   4 silent: who did not hear, or did
--       not come, and since when
-- ARGV  1 owner   2 holds it will then have   3 ms to leave the lock taken, by
--       nobody, when that is none; '0' = free it   4 W   5 channel of a waiter,
--       less its owner   6 ms that the first in line has to ask in when it
--       heard then the commands to publish with; none = 'publish'
-- Gives >= 1 when freed: 1 + how many heard of it; 0 when held once less; -1
--       when this owner does not hold it; -2 when freed, but the first in line
--       did not hear: look again in a second, with fair_leave.
--
-- Whoever is called and does not hear gets a second to show up, and the next is
-- called too; so a row of dead waiters costs one second, not one each. If the
-- row is very long, the last in line is called: it came last, so it lives if
-- anybody does, and will clear the row. Who hears and has somebody behind it is
-- marked as called, by its score and a half; who is alone gets at least W.
-- Twice is harmless. Works on a full server, and takes out no field but its
-- owner's (see basic_release).
local lock, queue, scores, silent = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, target, keep = ARGV[1], ARGV[2], ARGV[3]
local AGES = 315360000000 -- ten years of ms: no sane time is that far off
local wait, channel = math.min(tonumber(ARGV[4]), AGES), ARGV[5]
local called = math.min(tonumber(ARGV[6]), wait)
local SOON = 1000
-- Calls a waiter: how many heard, or -1 if nobody can tell. That is so without
-- the right to publish; and where a message goes to all nodes of a cluster, for
-- only those who listen at this one are counted.
local function call(who)
    local most = -1
    for i = 7, math.max(7, #ARGV) do
        local heard = redis.pcall(ARGV[i] or 'publish', channel .. who, '0')
        most = math.max(most, type(heard) == 'number' and heard or -1)
    end
    return most == 0 and ARGV[#ARGV] == 'publish' and -1 or most
end

local has
if target == '0' and keep == '0' then
    has = redis.pcall('hdel', lock, owner)
    if type(has) == 'table' then -- no right to do just that
        has = redis.call('hget', lock, owner) and redis.call('del', lock)
    end
else
    has = redis.call('hget', lock, owner)
end
if not has or has == 0 then
    return -1
end
if target ~= '0' then
    if (tonumber(has) or math.huge) > tonumber(target) then
        local done = redis.pcall('hset', lock, owner, target)
        if type(done) == 'table' then
            redis.pcall('hdel', lock, '')
            redis.call('hset', lock, owner, target)
        end
    end
    return 0
end
if keep ~= '0' then
    redis.call('pexpire', lock, keep)
    return 1
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

local place = 0
for _ = 1, 128 do
    local two = redis.call('lrange', queue, place, place + 1)
    local who = two[1]
    if not who then
        return place == 0 and 1 or -2
    end
    local heard = call(who)
    if heard < 0 then
        return 1
    elseif heard > 0 and place == 0 and two[2] then
        redis.pcall('zadd', scores, now + called + 0.5, who)
        return 1 + heard
    end
    local score = score_of(who)
    if heard > 0 then
        if score < now + wait then
            redis.pcall('zadd', scores, now + wait, who)
        end
        return place == 0 and 1 + heard or -2
    end
    if dead(who, score) then
        redis.call('lrem', queue, 1, who)
        redis.call('zrem', scores, who)
        redis.call('hdel', silent, who)
    else
        place = place + 1
    end
end
call(redis.call('lindex', queue, -1))
return -2
