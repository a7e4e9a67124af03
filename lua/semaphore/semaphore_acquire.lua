-- semaphore_acquire: take some permits, or say when the first may come back.
--
-- KEYS  1 number of free permits   2 the ledger: permits:owner, by the end of the
--       lease
-- ARGV  1 owner   2 how many   3 lease in ms   4 channel, then the commands to
--       publish with; none = 'publish'
-- Gives how many, as text, when taken; >= -1 when busy: ms until the first lease
--       in the ledger ends, -1 if there is none; -2 when nobody has said how many
--       permits there are; -6 when the key holds no number.
--
-- Twice is harmless: the entry is in the ledger already, and is not counted once
-- more. An owner is of one call only, so the entry can be of no other. Who has
-- it always writes, so that a WAIT behind it counts it.
local count, ledger = KEYS[1], KEYS[2]
local many, lease = tonumber(ARGV[2]), tonumber(ARGV[3])
local entry = ARGV[2] .. ':' .. ARGV[1]
local PUBLISH_ARGS = 5
--@include publish
--@include notify_free
--@include parse_int
--@include ledger

local free = redis.call('get', count)
if free and not parse_int(free) then
    return -6
end
local back
free, back = reclaim(count, ledger, parse_int(free) or false, many)
if not free then
    return -2
end
local taken, fresh = false, false
if free >= many then
    taken = true
    fresh = redis.call('zadd', ledger, 'nx', now + lease, entry) == 1
    if fresh then
        free = redis.call('decrby', count, ARGV[2])
    end
elseif redis.call('zscore', ledger, entry) then
    taken = true
end
if back > 0 then
    notify_free(ARGV[4], free, back)
end
if not taken then
    return first_end(ledger)
end
if not fresh then
    redis.call('zadd', ledger, 'gt', now + lease, entry)
end
local life = redis.call('pttl', count)
if life > 0 then
    redis.call('pexpire', ledger, life)
end
return ARGV[2]
