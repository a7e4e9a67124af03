-- basic_force: end one owner's hold, however often it holds.
--
-- KEYS  1 lock hash
-- ARGV  1 owner field   2 channel   then the commands to publish with; none =
--       'publish'
-- Gives 1 when it ended something, 0 when this owner did not hold the lock.
--
-- It names the owner it means, so that one that comes late cannot end a
-- stranger's hold. Also used to take back what was granted too late. A
-- read-write lock of that name is not ours to end.
local found = redis.call('hmget', KEYS[1], ARGV[1], 'mode')

if found[2] then
    return redis.error_reply('WRONGTYPE the key holds a read-write lock')
elseif not found[1] then
    return 0
end
redis.call('del', KEYS[1])
for i = 3, math.max(3, #ARGV) do
    redis.pcall(ARGV[i] or 'publish', ARGV[2], '0')
end
return 1
