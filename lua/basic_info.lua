-- basic_info: who holds the lock, how often, and for how long.
--
-- KEYS  1 lock hash
-- Gives an array: remaining time in ms (-1 none, -2 not locked), number of
--       fields, 0 (nobody queues), then field and value of up to 32.
--
-- A hash with many fields is no lock of this kind; a few of them will do.
local key = KEYS[1]
local count = redis.call('hlen', key)
local all
if count > 32 then
    all = redis.call('hscan', key, 0, 'count', 32)[2]
else
    all = redis.call('hgetall', key)
end
local answer = {redis.call('pttl', key), count, 0}

for i = 1, math.min(#all, 64) do
    answer[#answer + 1] = all[i]:sub(1, 512) -- a stranger's may be long
end
return answer
