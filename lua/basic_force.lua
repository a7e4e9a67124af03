-- basic_force: end one owner's hold, however often it holds.
--
-- KEYS  1 lock hash   2 channel
-- ARGV  1 owner field
-- Gives 1 when it ended something, 0 when this owner did not hold the lock.
--
-- It names the owner it means, so that one that comes late cannot end a
-- stranger's hold. Also used to take back what was granted too late.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return 0
end
redis.call('del', KEYS[1])
redis.pcall('publish', KEYS[2], '0')
return 1
