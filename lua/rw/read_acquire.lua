-- read_acquire: acquires the lock for reading, or returns how long to wait.
--
-- KEYS  1 lock hash   2 this owner's read key   3 writer intent
-- ARGV  1 owner   2 target hold count   3 lease in ms   4 the id under which
--       this owner writes, if it is another one; '' or none = it is not   5 an
--       owner that reads, as far as the client knows; '' or none = unknown
-- Returns nil if acquired; if busy, ms to wait, SCRIPT_BUSY_NO_TTL if unknown;
--       SCRIPT_OUTER_HOLD_LOST if the outer holds of a re-entry are gone;
--       SCRIPT_WRONG_TYPE if the key holds another kind of lock, or a hash that is
--       no lock.
--
-- A read hold is valid as long as its read key exists. All holds of an owner
-- share one read key, which has the longest of their leases. A writer intent
-- blocks new readers, but neither re-entries nor the holder of the write lock.
-- If the known reader is in the hash, the hash is a lock; else a sample of its
-- fields is checked, which doubles the server's time. Idempotent.
local key, read_key, writer_intent = KEYS[1], KEYS[2], KEYS[3]
local owner, target, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local known_reader = ARGV[5] or ''

local SAMPLE = 8 -- fields that are checked
local existing = redis.call('exists', key, writer_intent)
local found = existing > 0 and
    redis.call('hmget', key, 'mode', owner, known_reader) or {}
local mode = found[1]
local is_known = mode == 'read' and known_reader ~= '' and found[3]
local read_ttl, has = -2, 0

if existing > 0 and not mode and redis.call('exists', key) == 1 then
    return SCRIPT_WRONG_TYPE
end
if found[2] then
    read_ttl = redis.call('pttl', read_key)
    has = read_ttl ~= -2 and tonumber(found[2]) or 0 -- 0 also for no count
end
if read_ttl == -2 then
    if target ~= '1' then
        return SCRIPT_OUTER_HOLD_LOST
    end
    local writes = mode == 'write' and
        redis.call('hexists', key, owner .. ':write') == 1
    if mode == 'write' and not writes and (ARGV[4] or '') ~= '' then
        writes = redis.call('hexists', key, ARGV[4] .. ':write') == 1
    end
    if mode and not writes and not is_known then
--@include lock_fields
        local sample = redis.call('hrandfield', key, SAMPLE, 'withvalues')
        if not all_holds(sample) then
            return SCRIPT_WRONG_TYPE
        end
    end
    if mode == 'write' then
        if not writes then
            return redis.call('pttl', key)
        end
    elseif existing > (mode and 1 or 0) then
        local intent_ttl = redis.call('pttl', writer_intent)
        if intent_ttl > 0 then
            return intent_ttl
        end
    end
end

if not mode then
    redis.call('hset', key, 'mode', 'read', owner, target)
elseif has < tonumber(target) then
    redis.call('hset', key, owner, target)
end
local ttl = mode and redis.call('pttl', key) or -1
local done = true
if ttl < lease then
    done = redis.pcall('pexpire', key, ARGV[3])
elseif has >= tonumber(target) then
    redis.pcall('pexpire', key, ttl) -- so that WAIT covers it
end
if type(done) ~= 'table' and read_ttl < lease then
    done = redis.pcall('set', read_key, '1', 'px', ARGV[3])
end
if type(done) == 'table' and done.err then
    if target ~= '1' then
        redis.call('hset', key, owner, tonumber(target) - 1)
    else
        redis.call('hdel', key, owner)
        if redis.call('hlen', key) == 1 then
            redis.call('del', key)
        end
    end
    return {err = done.err .. ' (pexpire or set)'}
end
return false
