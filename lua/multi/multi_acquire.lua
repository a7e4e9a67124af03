-- multi_acquire: acquires several locks, or none of them.
--
-- KEYS  lock hashes; then, for each write lock among them, the key of its
--       writer intent
-- ARGV  1 lease in ms; then for each lock: 'p' (plain) or 'w' (write lock)
--       followed by the target hold count; owner, '' = as the one before
-- Returns nil if all are acquired; else an array: the index, from 1, of the
--       lock that is not available, and why: its TTL in ms, SCRIPT_BUSY_NO_TTL
--       if it has none; SCRIPT_OUTER_HOLD_LOST; SCRIPT_WRONG_TYPE: another kind of
--       lock, or no lock; SCRIPT_NOT_BATCHABLE: it is in read mode, only
--       write_acquire removes expired readers.
--
-- All locks are checked before the first is acquired, in one script and so
-- atomically. As for a single lock, a re-entry never shortens a lease, the
-- script is idempotent, and no lock is left without a TTL.
local lease, count = ARGV[1], (#ARGV - 1) / 2
local owners, all_plain = {}, true

for i = 1, count do
    local owner = ARGV[2 * i + 1]
    owners[i] = owner ~= '' and owner or owners[i - 1]
    all_plain = all_plain and ARGV[2 * i] == 'p1'
end

-- Fast path: none of the locks has a holder, and none is a re-entry.
local free = redis.call('exists', unpack(KEYS, 1, count)) == 0
if free and all_plain then
    for i = 1, count do
        redis.call('hset', KEYS[i], owners[i], '1')
        local done = redis.pcall('pexpire', KEYS[i], lease)
        if done ~= 1 then
            redis.call('del', unpack(KEYS, 1, i))
            return done
        end
    end
    return false
end

--@include is_lock

-- Returns why this lock is not available, or the error; false: it is available.
local function check(item)
    local found = not free and
        redis.pcall('hmget', item.key, item.owner, 'mode')
    if found and found.err then
        return found.err:find('WRONGTYPE', 1, true) and SCRIPT_WRONG_TYPE or found
    end
    item.ttl = free and -2 or redis.call('pttl', item.key)
    item.is_new = item.ttl == -2
    if item.is_new then
        item.has = 0
        return item.target ~= 1 and SCRIPT_OUTER_HOLD_LOST
    end
    item.has = tonumber(found[1] or 0) or 0
    local mode = found[2] or nil
    if item.writer_intent and mode == 'read' then
        return SCRIPT_NOT_BATCHABLE
    elseif (mode ~= nil) ~= (item.writer_intent ~= nil) then
        return SCRIPT_WRONG_TYPE
    elseif item.has > 0 then
        return false
    elseif item.target ~= 1 then
        return SCRIPT_OUTER_HOLD_LOST
    end
    return is_lock(item.key) and item.ttl or SCRIPT_WRONG_TYPE
end

local function undo(item)
    if item.target > 1 then
        redis.call('hset', item.key, item.owner, item.target - 1)
    elseif item.is_new then
        redis.call('del', item.key)
    end
end

local items, next_intent = {}, count
for i = 1, count do
    local item = {key = KEYS[i], owner = owners[i],
                  target = tonumber(ARGV[2 * i]:sub(2))}
    if ARGV[2 * i]:sub(1, 1) == 'w' then
        next_intent = next_intent + 1
        item.writer_intent = KEYS[next_intent]
        item.owner = item.owner .. ':write'
    end
    local reason = check(item)
    if type(reason) == 'table' then
        return reason
    elseif reason then
        return {i, reason}
    end
    items[i] = item
end

for i, item in ipairs(items) do
    if item.is_new and item.writer_intent then
        redis.call('hset', item.key, 'mode', 'write', item.owner, 1)
    elseif item.has < item.target then
        redis.call('hset', item.key, item.owner, item.target)
    end
    local lengthens = item.ttl < tonumber(lease)
    local done = lengthens and redis.pcall('pexpire', item.key, lease)
    if type(done) == 'table' then
        for j = 1, i do
            undo(items[j])
        end
        return done
    end
    if not lengthens and item.has >= item.target then
        redis.pcall('pexpire', item.key, item.ttl) -- so that WAIT covers it
    end
    if item.writer_intent then
        redis.call('del', item.writer_intent)
    end
end
return false
