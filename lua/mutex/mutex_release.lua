-- mutex_release: give back one hold; the last one frees the lock.
--
-- KEYS  1 lock hash
-- ARGV  1 owner field   2 holds the owner will then have   3 ms to leave the
--       lock taken, by nobody, when that is none; '0' = free it   4 channel
--       then the commands to publish with; none = 'publish'
-- Gives >= 1 when freed: 1 + how many were woken (a hint, no more); 0 when
--       held once less; -1 when this owner does not hold it.
--
-- Twice is harmless: the script lowers the number of holds to the one wanted,
-- it does not take one away. The sender knows whether "does not hold it" means
-- that the first sending did it. Works on a full server. Without the right to
-- publish the lock is still released: the waiters find out by themselves.
--
-- The first client in the queue is called whether or not anybody heard on the
-- lock's channel: the listener may have closed, or not have subscribed yet.
local owner, target, keep = ARGV[1], ARGV[2], ARGV[3]
local channel, PUBLISH_ARGS = ARGV[4], 5

if target ~= '0' or keep ~= '0' then
    local function first_waiter_channel()
        return channel
    end
--@include set_lower_count
--@include publish
--@include shorten_ttl
--@include retain_lock
end
--@include remove_owner
--@include publish

local heard = publish(channel, '0')
if heard >= 0 or ARGV[#ARGV] == 'publish' then
--@include notify_waiter
    heard = notify_waiter(channel, KEYS[1], heard, '2')
end
return 1 + math.max(heard, 0)
