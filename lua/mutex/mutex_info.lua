-- mutex_info: who holds the lock, how often, and for how long.
--
-- KEYS  1 lock hash
-- ARGV  1 value
-- Gives an array: remaining time in ms (-1 none, -2 not locked, -6 a hash that
--       is no lock), number of fields, 0 (nobody queues), then field and value
--       of up to 32, the mode before all others. Last, if the holder published
--       a value: the number of it, as a number.
--
-- Only a read-write lock has many fields; a few of them will do.
local key = KEYS[1]
--@include is_lock
--@include value_number

local count = redis.call('hlen', key)
local mode = count > 0 and redis.call('hget', key, 'mode')
local all
if count > 32 then
    all = redis.call('hscan', key, 0, 'count', 32)[2]
else
    all = redis.call('hgetall', key)
end
local lock = count == 0 or all_holds(all)
if count > 32 then
    lock = (mode == 'read' or mode == 'write') and (lock or #all <= 2)
end
if not lock then
    return {-6, 0, 0}
end
local answer = {redis.call('pttl', key), count, 0}

if mode then
    answer[4], answer[5] = 'mode', mode
end
for i = 1, #all, 2 do
    if all[i] ~= 'mode' and #answer < 3 + 64 then
        answer[#answer + 1] = all[i]:sub(1, 512) -- a stranger's may be long
        answer[#answer + 1] = all[i + 1]:sub(1, 512)
    end
end
answer[#answer + 1] = value_number(ARGV[1], all)
return answer
