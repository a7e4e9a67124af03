-- semaphore_acquire: take some permits, or say when the first may come back.
--
-- KEYS  1 number of free permits   2 the book: permits:owner, by the end of the
--       lease
-- ARGV  1 owner   2 how many   3 lease in ms   4 channel, then the commands to
--       publish with; none = 'publish'
-- Gives how many, as text, when taken; >= -1 when busy: ms until the first lease
--       in the book ends, -1 if there is none; -2 when nobody has said how many
--       permits there are; -6 when the key holds no number.
--
-- Twice is harmless: the entry is in the book already, and is not counted once
-- more. An owner is of one call only, so the entry can be of no other. Who has
-- it always writes, so that a WAIT behind it counts it.
local count, book = KEYS[1], KEYS[2]
local many, lease = tonumber(ARGV[2]), tonumber(ARGV[3])
local entry = ARGV[2] .. ':' .. ARGV[1]
local HOW = 5
--@include publish
--@include tell_free
--@include whole
--@include held

local free = redis.call('get', count)
if free and not whole(free) then
    return -6
end
local back
free, back = reclaim(count, book, whole(free) or false, many)
if not free then
    return -2
end
local taken, fresh = false, false
if free >= many then
    taken = true
    fresh = redis.call('zadd', book, 'nx', now + lease, entry) == 1
    if fresh then
        free = redis.call('decrby', count, ARGV[2])
    end
elseif redis.call('zscore', book, entry) then
    taken = true
end
if back > 0 then
    tell_free(ARGV[4], free, back)
end
if not taken then
    return first_end(book)
end
if not fresh then
    redis.call('zadd', book, 'gt', now + lease, entry)
end
local life = redis.call('pttl', count)
if life > 0 then
    redis.call('pexpire', book, life)
end
return ARGV[2]
