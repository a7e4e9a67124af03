-- slots_leave: a client stops waiting for a permit.
--
-- KEYS  1 number of free permits
-- ARGV  1 channel   2 the channel on which the client is notified   3 '1' if it
--       also stops listening to the lock's channel   then the publish commands
--       (none: 'publish')
-- Returns the number of other clients notified.
--
-- As wait_leave. If several permits are free, one client is notified, too: once
-- it acquired one, it notifies the next.
local PUBLISH_ARGS = 4
--@include publish
--@include notify_waiter
--@include deregister
--@include parse_int

local free = parse_int(redis.call('get', KEYS[1])) or 0
return deregister(ARGV[1], KEYS[1], ARGV[2], ARGV[3] == '1', free > 0, '0')
