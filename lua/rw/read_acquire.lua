-- read_acquire: join the readers, or say how long to wait.
--
-- KEYS  1 lock hash   2 this owner's read key   3 key of a waiting writer
-- ARGV  1 owner   2 holds it will then have   3 lease in ms   4 by which other
--       name this owner writes; '' or none = by no other   5 an owner who
--       reads, as far as the client knows; '' or none = it knows of none
-- Gives nil when taken; >= -1 when busy for so many ms; -3 when the outer holds
--       of a re-entry are gone; -6 when the key holds another kind of lock, or
--       a hash that is no lock.
--
-- A read hold counts as long as its read key lives. One key serves all holds of
-- an owner: it lives as long as the longest of them. A writer that waits keeps
-- new readers out, but not those who read already, nor the holder of the write
-- lock. Whether the hash is a lock at all is seen by the owner that the client
-- knows of; without one a few fields are looked at, which takes the server as
-- long as all the rest. Twice is harmless.
local key, mine, writer_intent = KEYS[1], KEYS[2], KEYS[3]
local owner, target, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local known = ARGV[5] or ''

local FEW = 8 -- fields that are looked at
local there = redis.call('exists', key, writer_intent)
local found = there > 0 and redis.call('hmget', key, 'mode', owner, known) or {}
local mode = found[1]
local sure = mode == 'read' and known ~= '' and found[3]
local reads, has = -2, 0

if there > 0 and not mode and redis.call('exists', key) == 1 then
    return -6
end
if found[2] then
    reads = redis.call('pttl', mine)
    has = reads ~= -2 and tonumber(found[2]) or 0 -- 0: or no count
end
if reads == -2 then
    if target ~= '1' then
        return -3
    end
    local writes = mode == 'write' and
        redis.call('hexists', key, owner .. ':write') == 1
    if mode == 'write' and not writes and (ARGV[4] or '') ~= '' then
        writes = redis.call('hexists', key, ARGV[4] .. ':write') == 1
    end
    if mode and not writes and not sure then
--@include is_lock
        if not all_holds(redis.call('hrandfield', key, FEW, 'withvalues')) then
            return -6
        end
    end
    if mode == 'write' then
        if not writes then
            return redis.call('pttl', key)
        end
    elseif there > (mode and 1 or 0) then
        local shut = redis.call('pttl', writer_intent)
        if shut > 0 then
            return shut
        end
    end
end

if not mode then
    redis.call('hset', key, 'mode', 'read', owner, target)
elseif has < tonumber(target) then
    redis.call('hset', key, owner, target)
end
local left = mode and redis.call('pttl', key) or -1
local done = true
if left < lease then
    done = redis.pcall('pexpire', key, ARGV[3])
elseif has >= tonumber(target) then
    redis.pcall('pexpire', key, left) -- so that a WAIT counts it
end
if type(done) ~= 'table' and reads < lease then
    done = redis.pcall('set', mine, '1', 'px', ARGV[3])
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
