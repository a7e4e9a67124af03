-- value_drop: takes away what an owner published with a lock.
--
-- KEYS  1 value
-- ARGV  1 owner  2 number of its value
-- Gives 1 it is gone; 0 there is none of this owner, or a newer one, which
--       stays.
local who, number = (redis.call('get', KEYS[1]) or ''):match('^(%S+) (%d+) ')

if who ~= ARGV[1] or tonumber(number) > tonumber(ARGV[2]) then
    return 0
end
return redis.call('del', KEYS[1])
