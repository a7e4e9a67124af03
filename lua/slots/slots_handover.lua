-- slots_handover: moves a permit from one owner of a client to another.
--
-- KEYS  1 acquired permits: ids, scored by their end   2 slot table: slot
--       number -> permit id and owner
-- ARGV  1 old id   2 new id   3 new owner   4 lease in ms   5 slot number
-- Returns the slot number as a string; SCRIPT_NOT_HELD if neither id is an
--       acquired permit.
--
-- The new owner gets a permit of its own, so that a delayed release by the old
-- owner cannot release it. Idempotent: a repeated request finds the new permit.
local permits, slot_table = KEYS[1], KEYS[2]
local old, new = ARGV[1], ARGV[2]
--@include now
local ends = now + tonumber(ARGV[4])
-- Redis checks for OOM only before a script's first write: a no-op write.
redis.pcall('zrem', permits, '')
local scores = redis.call('zmscore', permits, old, new)

if scores[2] then
    redis.call('zadd', permits, 'gt', ends, new)
elseif scores[1] and tonumber(scores[1]) > now then
    redis.call('zadd', permits, ends, new)
    redis.call('zrem', permits, old)
else
    return SCRIPT_NOT_HELD
end
redis.call('hset', slot_table, ARGV[5], new .. ARGV[3])
return ARGV[5]
