-- fair_acquire: take the lock in turn, or stand in the queue for it.
--
-- KEYS  1 lock hash   2 queue   3 scores: until when each waiter counts
--       4 silent: who did not hear, and since when
-- ARGV  1 owner   2 holds it will then have   3 lease in ms
--       4 W: how long a silent waiter counts   5 channel of a waiter, less its
--       owner   6 '1' to wait in the queue, '0' to go away again   then the
--       commands to publish with; none = 'publish'
-- Gives nil when taken; >= 0 when not: come back after so many ms at the
--       latest; -3 when the outer holds of a re-entry are gone; -6 when the
--       key holds a read-write lock.
--
-- The server's clock counts, nobody else's. A waiter that asks proves that it
-- lives and pushes its score back, beyond anything that another client may take
-- off it meanwhile. One that does not hear when it is called, and a second later
-- still does not, is dead, and goes; so does one that is silent past its score.
-- That second is noted apart: a score taken down would have other clients throw
-- out a waiter that just has not begun to listen. Twice is harmless.
local lock, queue, scores, silent = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, target, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local wait, channel, stay = tonumber(ARGV[4]), ARGV[5], ARGV[6] == '1'
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
    for i = 7, math.max(7, #ARGV) do
        local heard = redis.pcall(ARGV[i] or 'publish', channel .. who, '0')
        most = math.max(most, type(heard) == 'number' and heard or -1)
    end
    return most == 0 and ARGV[#ARGV] == 'publish' and -1 or most
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
    elseif found[1] then
        return hold(tonumber(found[1]))
    end
end
if target ~= '1' then
    return -3
end

-- Nobody heard the call. The ms that it still has; 0: it had them, and goes. What
-- is left of a score after whole Ws tells one stay in the queue from the next.
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

-- The lock is free: whose turn is it? Who is called and does not hear gets a
-- second, who had that already goes. Without the right to call nobody knows who
-- hears; then only the score counts.
local sleep
if left == -2 then
    local place = 0
    for _ = 1, 256 do
        local who = redis.call('lindex', queue, place)
        if (not who or who == owner) and place == 0 then
            while who == owner do
                redis.call('lpop', queue)
                who = redis.call('lindex', queue, 0)
            end
            if who then
                redis.call('zrem', scores, owner)
                redis.call('zadd', scores, now + lease + wait, who)
            else
                redis.call('del', scores, silent)
            end
            return hold(0)
        elseif not who or who == owner or place == 128 then
            break
        end
        local heard = call(who)
        local mute = heard < 0
        local score = tonumber(redis.call('zscore', scores, who) or 0)
        local mine = 0 -- ms that it still has without asking
        if mute then
            mine = score > now and -1 or 0
        elseif heard == 0 then
            mine = score > now and rest(who, score) or 0
        elseif score % 1 == 0 or score > now + 2 * SOON then
            -- It hears, so it will ask. If it does not (a stopped process hears
            -- too), it has one second more: the half marks that.
            if score <= now then
                redis.call('zadd', scores, now + SOON + 0.5, who)
                sleep = SOON
            end
            break
        elseif score > now then
            sleep = score - now + 1
            break
        end
        if mine < 0 then
            break
        elseif mine == 0 then
            redis.call('lrem', queue, 1, who)
            redis.call('zrem', scores, who)
        else
            sleep = sleep or mine + 1
            place = place + 1
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
local horizon = now + math.max(left, 0)
redis.call('zadd', scores, horizon + wait * (place + 1), owner)
-- Nothing stays for ever, and both end together, behind the last score.
local last = redis.call('zrange', scores, -1, -1, 'WITHSCORES')[2]
local over = math.max(horizon + lease + wait * (length + 4),
                      math.ceil(last) + wait)
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
