-- fair_info: who holds the lock, and who waits for it in which order.
--
-- KEYS  1 lock hash   2 queue   3 scores
-- ARGV  1 first place wanted   2 how many
-- Gives an array: remaining time in ms (-1 none, -2 not locked), number of
--       fields, length of the queue, then field and value of up to 32; then,
--       for each place asked for, the waiter and until when it counts in ms
--       from now, '' if nobody knows.
local lock, queue, scores = KEYS[1], KEYS[2], KEYS[3]
local first, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local held = redis.call('hlen', lock)
local all = {}
if held <= 32 then
    all = redis.call('hgetall', lock)
end
local answer = {redis.call('pttl', lock), #all / 2, redis.call('llen', queue)}

for i = 1, math.min(#all, 64) do
    answer[#answer + 1] = all[i]:sub(1, 512) -- a stranger's may be long
end
if count > 0 then
    local time = redis.call('time')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local who = redis.call('lrange', queue, first, first + count - 1)
    for _, owner in ipairs(who) do
        local score = redis.call('zscore', scores, owner)
        answer[#answer + 1] = owner
        answer[#answer + 1] = score and tostring(score - now) or ''
    end
end
return answer
