-- value_drop: deletes the value that an owner published with a lock.
--
-- KEYS  1 value
-- ARGV  1 owner  2 number of its value
-- Returns 1 if deleted; 0 if this owner has none, or a newer one, which stays.
local publisher, number =
    (redis.call('get', KEYS[1]) or ''):match('^(%S+) (%d+) ')

if publisher ~= ARGV[1] or tonumber(number) > tonumber(ARGV[2]) then
    return 0
end
return redis.call('del', KEYS[1])
