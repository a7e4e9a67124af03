-- fair_leave: take an owner out of the queue, and if need be off the lock.
--
-- KEYS  1 lock hash   2 queue   3 scores
-- ARGV  1 owner   2 channel of a waiter, less its owner   3 '1' to end its hold
--       as well   then the commands to publish with; none = 'publish'
-- Gives 1 when a hold was ended, else 0.
--
-- Whoever leaves may have been the one who was called. So if the lock is free
-- then, the next in line is called, as a release does it. Twice is harmless; it
-- names the owner it means, so one that comes late does a stranger no harm.
local lock, queue, scores = KEYS[1], KEYS[2], KEYS[3]
local owner, channel = ARGV[1], ARGV[2]
local SOON = 1000
local ended = 0

-- Calls a waiter: how many heard, or -1 if nobody can tell. That is so without
-- the right to publish; and where a message goes to all nodes of a cluster, for
-- only those who listen at this one are counted.
local function call(who)
    local most = -1
    for i = 4, math.max(4, #ARGV) do
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
for place = 0, 15 do
    local who = redis.call('lindex', queue, place)
    if not who then
        if place == 0 then
            redis.call('del', scores)
        end
        return ended
    end
    if call(who) ~= 0 then
        return ended
    end
    local score = redis.call('zscore', scores, who)
    if score and tonumber(score) > now + SOON then
        redis.pcall('zadd', scores, now + SOON, who)
    end
end
call(redis.call('lindex', queue, -1))
return ended
