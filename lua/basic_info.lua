-- basic_info: who holds the lock, how often, and for how long.
--
-- KEYS  1 lock hash
-- Gives an array: remaining time in ms (-1 none, -2 not locked), number of
--       fields, 0 (nobody queues), then field and value of up to 32.
local key = KEYS[1]
local all = redis.call('hgetall', key)
local answer = {redis.call('pttl', key), #all / 2, 0}

for i = 1, math.min(#all, 64) do
    answer[#answer + 1] = all[i]
end
return answer
