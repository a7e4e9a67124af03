-- value_set: publishes a value with a lock that the owner holds.
--
-- KEYS  1 lock hash  2 value
-- ARGV  1 owner  2 number of this value  3 its text  4 lease in ms  5 channel
--       then the publish commands (none: 'publish')
-- Returns 1 if published, or if a newer value of this owner exists; 0 if the
--       owner does not hold the lock.
--
-- The key holds "owner number text". It expires with the lock, so the value is
-- gone when this owner acquires the lock again; the lease is used only if the
-- lock has no TTL. Numbers grow, so a delayed request does not replace a newer
-- value.
--
-- A change is announced by '2' on the lock's channel, to those who watch the
-- lock. '2' is no release, so waiters do not retry.
local lock, value, owner = KEYS[1], KEYS[2], ARGV[1]
local channel, PUBLISH_ARGS = ARGV[5], 6
--@include publish

if redis.call('hexists', lock, owner) == 0 then
    return 0
end
local publisher, number, text =
    (redis.call('get', value) or ''):match('^(%S+) (%d+) (.*)$')
if publisher == owner and tonumber(number) > tonumber(ARGV[2]) then
    return 1
end
local ttl = redis.call('pttl', lock)
redis.call('set', value, owner .. ' ' .. ARGV[2] .. ' ' .. ARGV[3],
           'px', ttl > 0 and ttl or tonumber(ARGV[4]))
if publisher ~= owner or text ~= ARGV[3] then
    publish(channel, '2')
end
return 1
