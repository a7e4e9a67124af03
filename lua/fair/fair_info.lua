-- fair_info: who holds the lock, and who waits for it in which order.
--
-- KEYS  1 lock hash   2 queue   3 scores
-- ARGV  1 first place wanted   2 how many   3 value
-- Gives an array: remaining time in ms (-1 none, -2 not locked, -6 a hash that
--       is no lock), number of fields, length of the queue, then field and
--       value of up to 32; then, for each place asked for, the waiter and until
--       when it counts in ms from now, '' if nobody knows or its score is no
--       sane time. Last, if the holder published a value: the number of it, as
--       a number.
--@include is_lock
--@include value_number
local AGES = 315360000000 -- ten years of ms: no sane time is that far off
local lock, queue, scores = KEYS[1], KEYS[2], KEYS[3]
local first, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local held = redis.call('hlen', lock)
local all = held <= 32 and redis.call('hgetall', lock) or {}
local left = held <= 32 and redis.call('pttl', lock) or -6
local answer = {left, #all / 2, redis.call('llen', queue)}

if not all_holds(all) then
    answer[1] = -6
end
for i = 1, #all, 2 do
    answer[#answer + 1] = all[i]:sub(1, 512) -- a stranger's may be long
    answer[#answer + 1] = all[i + 1]:sub(1, 512)
end
if count > 0 then
    local time = redis.call('time')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local who = redis.call('lrange', queue, first, first + count - 1)
    for _, owner in ipairs(who) do
        local score = tonumber(redis.call('zscore', scores, owner) or nil)
        local sane = score and score >= 0 and score <= now + AGES
        answer[#answer + 1] = owner:sub(1, 512)
        answer[#answer + 1] = sane and ('%.0f'):format(score - now) or ''
    end
end
answer[#answer + 1] = value_number(ARGV[3], all)
return answer
