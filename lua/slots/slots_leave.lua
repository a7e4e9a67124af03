-- slots_leave: a client does not wait for a permit any more.
--
-- KEYS  1 number of free permits
-- ARGV  1 channel   2 the channel on which the client is called   3 '1' if it
--       listens no more, either   then the commands to publish with; none =
--       'publish'
-- Gives how many others were called.
--
-- As wait_leave. If several permits are free, one client is called, too: who
-- gets in calls the next.
local PUBLISH_ARGS = 4
--@include publish
--@include notify_waiter
--@include deregister
--@include parse_int

local free = parse_int(redis.call('get', KEYS[1])) or 0
return deregister(ARGV[1], KEYS[1], ARGV[2], ARGV[3] == '1', free > 0, '0')
