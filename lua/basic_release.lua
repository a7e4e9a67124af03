-- basic_release: give back one hold; the last one frees the lock.
--
-- KEYS  1 lock hash
-- ARGV  1 owner field   2 holds the owner will then have   3 ms to leave the
--       lock taken, by nobody, when that is none; '0' = free it   4 channel
--       then the commands to publish with; none = 'publish'
-- Gives >= 1 when freed: 1 + how many heard of it (a hint, no more); 0 when
--       held once less; -1 when this owner does not hold it.
--
-- Twice is harmless: it lowers the number of holds to the one wanted, it does
-- not take one away; whether "does not hold it" means that the first sending
-- did it, the sender knows. Works on a full server: the last hold needs no
-- command that such a one refuses, and a smaller count is let through once a
-- script has written; an empty field that is not there is enough for that. Only
-- the owner's own field is taken out, in case an application has put something
-- beside it. Who may not publish still releases: the waiters then find out by
-- themselves.
local key, owner, target, keep = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local has

if target == '0' and keep == '0' then
    has = redis.pcall('hdel', key, owner)
    if type(has) == 'table' then -- no right to do just that
        has = redis.call('hget', key, owner) and redis.call('del', key)
    end
else
    has = redis.call('hget', key, owner)
end
if not has or has == 0 then
    return -1
end
if target ~= '0' then
    if (tonumber(has) or math.huge) > tonumber(target) then
        local done = redis.pcall('hset', key, owner, target)
        if type(done) == 'table' then
            redis.pcall('hdel', key, '')
            redis.call('hset', key, owner, target)
        end
    end
    return 0
end
if keep ~= '0' then
    redis.call('pexpire', key, keep)
    return 1
end
local most = 0
for i = 5, math.max(5, #ARGV) do
    local heard = redis.pcall(ARGV[i] or 'publish', ARGV[4], '0')
    most = math.max(most, type(heard) == 'number' and heard or 0)
end
return 1 + most
