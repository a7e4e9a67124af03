-- basic_info: who holds the lock, how often, and for how long.
--
-- KEYS  1 lock hash
-- Gives an array: remaining time in ms (-1 none, -2 not locked), number of
--       fields, then up to 32 of field and value.
local key = KEYS[1]
local left = redis.call('pttl', key)
if left == -2 then
    return {-2, 0}
end
local all = redis.call('hgetall', key)
local answer = {left, #all / 2}
for i = 1, math.min(#all, 64) do
    answer[i + 2] = all[i]
end
return answer
