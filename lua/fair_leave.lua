-- fair_leave: take an owner out of the queue, and if need be off the lock.
--
-- KEYS  1 lock hash   2 queue   3 scores   4 silent: who did not hear, and since
--       when
-- ARGV  1 owner   2 channel of a waiter, less its owner   3 '1' to end its hold
--       as well   4 W   then the commands to publish with; none = 'publish'
-- Gives 1 when a hold was ended; else 0, or 2 when the first in line did not
--       hear: look again in a second.
--
-- Whoever leaves may have been the one who was called. So if the lock is free
-- then, the next in line is called, as a release does it. Twice is harmless; it
-- names the owner it means, so one that comes late does a stranger no harm.
local lock, queue, scores, silent = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, channel, wait = ARGV[1], ARGV[2], tonumber(ARGV[4])
local SOON = 1000
local ended = 0

-- Calls a waiter: how many heard, or -1 if nobody can tell. That is so without
-- the right to publish; and where a message goes to all nodes of a cluster, for
-- only those who listen at this one are counted.
local function call(who)
    local most = -1
    for i = 5, math.max(5, #ARGV) do
        local heard = redis.pcall(ARGV[i] or 'publish', channel .. who, '0')
        most = math.max(most, type(heard) == 'number' and heard or -1)
    end
    return most == 0 and ARGV[#ARGV] == 'publish' and -1 or most
end

if ARGV[3] == '1' then
    local found = redis.call('hmget', lock, owner, 'mode')
    if found[2] then
        return redis.error_reply('WRONGTYPE the key holds a read-write lock')
    elseif found[1] then
        redis.call('del', lock)
        ended = 1
    end
end
redis.call('zrem', scores, owner)
redis.call('lrem', queue, 0, owner)
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

local place = 0
for _ = 1, 128 do
    local who = redis.call('lindex', queue, place)
    if not who and place == 0 then
        redis.call('del', scores, silent)
        return ended
    elseif not who then
        break
    end
    if call(who) ~= 0 then
        return (place == 0 or ended == 1) and ended or 2
    end
    local score = tonumber(redis.call('zscore', scores, who) or 0)
    if dead(who, score) then
        redis.call('lrem', queue, 1, who)
        redis.call('zrem', scores, who)
        redis.call('hdel', silent, who)
    else
        place = place + 1
    end
end
if place == 128 then
    call(redis.call('lindex', queue, -1))
end
return ended == 1 and 1 or 2
