-- slots_handover: pass a permit from one owner of a client to the next.
--
-- KEYS  1 permits that are out, by their end   2 number of a slot -> id and
--       owner of the permit
-- ARGV  1 old id   2 new id   3 new owner   4 lease in ms   5 number of the slot
-- Gives the number of the slot as text when the new owner has it, -1 when
--       neither of them does.
--
-- A permit has one owner, so that a late release of the old owner cannot end
-- the new one's. Twice is harmless: a second sending finds the new one out.
local out, seats = KEYS[1], KEYS[2]
local old, new = ARGV[1], ARGV[2]
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = now + tonumber(ARGV[4])
redis.pcall('zrem', out, '') -- a full server lets the rest pass then
local scores = redis.call('zmscore', out, old, new)

if scores[2] then
    redis.call('zadd', out, 'gt', ends, new)
elseif scores[1] and tonumber(scores[1]) > now then
    redis.call('zadd', out, ends, new)
    redis.call('zrem', out, old)
else
    return -1
end
redis.call('hset', seats, ARGV[5], new .. ARGV[3])
return ARGV[5]
