-- value_set: what the holder of a lock publishes with it.
--
-- KEYS  1 lock hash  2 value
-- ARGV  1 owner  2 number of this value  3 its text  4 lease in ms  5 channel
--       then the commands to publish with; none = 'publish'
-- Gives 1 published, or a newer value of this owner is there; 0 the owner does
--       not hold the lock.
--
-- The value is one string: owner, number, text, with spaces between them. It
-- ends when the lock would: so if this owner takes the lock anew, its old value
-- is gone. Numbers grow, so a copy that comes late does not replace a newer
-- value. The lease counts only if somebody took the lock's end away.
--
-- Those who watch the lock hear of a change: '2' on the lock's channel, which
-- is no release, so nobody who waits has to ask.
local lock, value, owner = KEYS[1], KEYS[2], ARGV[1]
local channel, PUBLISH_ARGS = ARGV[5], 6
--@include publish

if redis.call('hexists', lock, owner) == 0 then
    return 0
end
local who, number, text =
    (redis.call('get', value) or ''):match('^(%S+) (%d+) (.*)$')
if who == owner and tonumber(number) > tonumber(ARGV[2]) then
    return 1
end
local left = redis.call('pttl', lock)
redis.call('set', value, owner .. ' ' .. ARGV[2] .. ' ' .. ARGV[3],
           'px', left > 0 and left or tonumber(ARGV[4]))
if who ~= owner or text ~= ARGV[3] then
    publish(channel, '2')
end
return 1
