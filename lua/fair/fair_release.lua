-- fair_release: give back one hold; the last one frees the lock and calls the
-- next in line.
--
-- KEYS  1 lock hash   2 queue   3 scores   4 unresponsive: who did not hear, or did
--       not come, and since when
-- ARGV  1 owner   2 holds it will then have   3 ms to leave the lock taken, by
--       nobody, when that is none; '0' = free it   4 W   5 channel of a waiter,
--       less its owner   6 ms that the first in line has to ask in when it
--       heard   then the commands to publish with; none = 'publish'
-- Gives >= 1 when freed: 1 + how many heard of it; 0 when held once less; -1
--       when this owner does not hold it; -2 when freed, but the first in line
--       did not hear: look again in a second, with fair_leave.
--
-- A waiter that is called and does not hear gets a second to show up, and the
-- next is called too; so a row of dead waiters costs one second, not one each.
-- If the row is very long, the last in line is called: it came last, so it
-- lives if any of them does, and will clear the row. A waiter that hears and
-- has one behind it is marked as called, by its score and a half; a waiter that
-- is alone gets at least W. Twice is harmless. Works on a full server.
local queue, scores, unresponsive = KEYS[2], KEYS[3], KEYS[4]
local owner, target, keep = ARGV[1], ARGV[2], ARGV[3]
local AGES = 315360000000 -- ten years of ms: no sane time is that far off
local wait, channel = math.min(tonumber(ARGV[4]), AGES), ARGV[5]
local called = math.min(tonumber(ARGV[6]), wait)
local PUBLISH_ARGS = 7

if target ~= '0' or keep ~= '0' then
    local function first_waiter_channel()
        local who = redis.call('lindex', queue, 0)
        return who and channel .. who
    end
--@include set_lower_count
--@include publish
--@include shorten_ttl
--@include retain_lock
end
--@include remove_owner
local two = redis.call('lrange', queue, 0, 1)
if not two[1] then
    return 1
end
--@include publish
--@include fair_queue

local place = 0
for _ = 1, 128 do
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
    if grace_left_offline(who, score) == 0 then
        evict(who)
    else
        place = place + 1
    end
    two = redis.call('lrange', queue, place, place + 1)
end
call(redis.call('lindex', queue, -1))
return -2
