-- fair_leave: take an owner out of the queue, and if need be off the lock.
--
-- KEYS  1 lock hash   2 queue   3 scores
-- ARGV  1 owner   2 channel of a waiter, less its owner   3 '1' to end its hold
--       as well
-- Gives 1 when a hold was ended, else 0.
--
-- Whoever leaves may have been the one who was called. So if the lock is free
-- then, the next in line is called. Twice is harmless; it names the owner it
-- means, so one that comes late does a stranger no harm.
local lock, queue, scores = KEYS[1], KEYS[2], KEYS[3]
local owner, channel = ARGV[1], ARGV[2]
local ended = 0

if ARGV[3] == '1' and redis.call('hexists', lock, owner) == 1 then
    redis.call('del', lock)
    ended = 1
end
redis.call('zrem', scores, owner)
redis.call('lrem', queue, 0, owner)
if redis.call('exists', lock) == 0 then
    local next = redis.call('lindex', queue, 0)
    if next then
        redis.pcall('publish', channel .. next, '0')
    end
end
return ended
