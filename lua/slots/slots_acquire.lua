-- slots_acquire: acquires one permit, or returns when the first permit expires.
--
-- KEYS  1 number of free permits   2 acquired permits: ids, scored by their end
--       3 slot table: slot number -> permit id and owner
-- ARGV  1 permit id   2 owner   3 target hold count   4 lease in ms   5 total
--       number of permits, if it was not set   6 '1' to return the total
--       7 channel   optional, to wait in the queue: 8 and 9 as 5 and 6 of
--       mutex_acquire   then the publish commands (none: 'publish')
-- Returns the slot number as a string if acquired, followed by a slash and the
--       total if that is wanted; nil for a re-entry; if busy, ms until the
--       first permit expires, SCRIPT_BUSY_NO_TTL if none does, with 8 and 9 an
--       array as mutex_acquire; SCRIPT_OUTER_HOLD_LOST if the permit of a
--       re-entry is gone; SCRIPT_WRONG_TYPE if the key holds no number.
--
-- Idempotent: a permit that is acquired already is not counted again. If the
-- total was not set, or the number of free permits was lost, it is computed
-- from the acquired permits. Expired permits are reclaimed if none is free. A
-- slot is free if the permit in its entry is not acquired. A success always
-- writes, so that a WAIT after the script covers it. Several permits may be
-- free at once, while a release notifies one client only: so a client that was
-- notified, or polled, and acquired a permit notifies the next client if more
-- are free.
local count, permits, slot_table = KEYS[1], KEYS[2], KEYS[3]
local id, owner, attempt = ARGV[1], ARGV[2], ARGV[9]
--@include now
local ends = ('%d'):format(now + ARGV[4])
local free = redis.call('get', count)

-- Fast path: permits are free, and the slot table is empty. Inlined for speed.
-- A permit that is acquired already, or whose slot the server refuses to note,
-- takes the slow path.
local table_size
if free and #free <= 15 and free:find('^[1-9]%d*$') and ARGV[3] == '1' then
    table_size = redis.call('hlen', slot_table)
    if table_size == 0 and ARGV[6] ~= '1' and
        (not attempt or attempt == 'new' or attempt == 'publish') and
        redis.call('zadd', permits, 'nx', ends, id) == 1 then
        redis.call('decrby', count, '1')
        if redis.pcall('hset', slot_table, '0', id .. owner) == 1 then
            local ttl = redis.call('pttl', count)
            if ttl > 0 then
                redis.call('pexpire', permits, ttl)
                redis.call('pexpire', slot_table, ttl)
            end
            return '0'
        end
        redis.call('zrem', permits, id)
        redis.call('incrby', count, '1')
    end
end

-- Without 8 and 9, the publish commands begin there.
attempt = attempt ~= 'publish' and attempt
local channel, client_channel = ARGV[7], ARGV[8]
local PUBLISH_ARGS = attempt and 10 or 8
--@include parse_int
if free and not parse_int(free) then
    return SCRIPT_WRONG_TYPE
end
free = parse_int(free)

if ARGV[3] ~= '1' then
    local score = tonumber(redis.call('zscore', permits, id) or nil)
    if not score or score <= now then
        return SCRIPT_OUTER_HOLD_LOST
    end
    redis.call('zadd', permits, 'xx', 'gt', ends, id)
    return false
end

-- Notes the slot of this permit. Returns the slot number as a string, with the
-- total if wanted. If the server refuses, a new permit is rolled back, and the
-- error returned.
local function note_slot(slot, is_new)
    local done = redis.pcall('hset', slot_table, slot, id .. owner)
    if type(done) == 'table' then
        if is_new then
            redis.call('zrem', permits, id)
            redis.call('incrby', count, '1')
        end
        return done
    end
    local ttl = redis.call('pttl', count)
    if ttl > 0 then
        redis.call('pexpire', permits, ttl)
        redis.call('pexpire', slot_table, ttl)
    end
    if ARGV[6] == '1' then
        local total = redis.call('get', count) + redis.call('zcard', permits)
        return ('%s/%.0f'):format(slot, total)
    end
    return tostring(slot)
end

--@include slot_permits
-- Reclaims expired permits until one is free.
local first = redis.call('zrange', permits, '0', '0', 'withscores')
local reclaimed = 0
for _ = 1, 10 do
    if not first[1] or tonumber(first[2]) > now or
        (free or 0) + reclaimed > 0 and reclaimed > 0 then
        break
    end
    local removed = reclaim(permits)
    reclaimed = reclaimed + removed
    first = redis.call('zrange', permits, '0', '0', 'withscores')
    if removed == 0 then
        break
    end
end
if not free then
    free = tonumber(ARGV[5]) - redis.call('zcard', permits)
    redis.call('set', count, ('%.0f'):format(free))
    reclaimed = math.max(free, 1) -- so that waiters are notified
elseif reclaimed > 0 then
    free = redis.call('incrby', count, reclaimed)
end

-- Returns `many` entries of the slot table, from slot `low` on.
local function entries_from(low, many)
    local slots = {}
    for i = 1, many do
        slots[i] = tostring(low + i - 1)
    end
    return redis.call('hmget', slot_table, unpack(slots))
end

-- Returns the entries of the first slots, and the slots of this permit. A small
-- table is read at once, plus one slot: so one of the first slots is free. Of a
-- large one only the first entries are read.
local function first_entries()
    table_size = table_size or redis.call('hlen', slot_table)
    if table_size > 100 then
        return entries_from(0, 100), {}
    end
    local all = redis.call('hgetall', slot_table)
    local entries, own_slots = {}, {}
    for i = 1, table_size + 1 do
        entries[i] = false
    end
    for i = 1, #all, 2 do
        local slot = tonumber(all[i])
        if slot and all[i + 1]:sub(1, 16) == id then
            own_slots[#own_slots + 1] = slot
        elseif slot and entries[slot + 1] == false then
            entries[slot + 1] = all[i + 1]
        end
    end
    return entries, own_slots
end

-- Returns the lowest free slot: one without an entry, or whose permit is not
-- acquired, or with an entry of this permit, which is deleted: a permit has one
-- slot. entries: those of the first slots.
local function lowest_free_slot(entries)
    local low = 0
    while true do
        local ids, vacant = {}, nil -- ids: of the slots before the vacant one
        for i, entry in ipairs(entries) do
            local is_own = entry and entry:sub(1, 16) == id
            if is_own then
                redis.call('hdel', slot_table, low + i - 1)
            end
            if is_own or not entry then
                vacant = vacant or low + i - 1
            elseif not vacant then
                ids[i] = entry:sub(1, 16)
            end
        end
        if #ids > 0 then
            local scores = redis.call('zmscore', permits, unpack(ids))
            for i = 1, #ids do
                if not scores[i] then
                    return low + i - 1
                end
            end
        end
        if vacant then
            return vacant
        end
        low = low + #entries
        entries = entries_from(low, 100)
    end
end

-- Returns the lowest slot of this permit, nil if it has none. own_slots: as
-- first_entries returned them.
local function lowest_own_slot(own_slots)
    if table_size <= 100 then
        return own_slots[1] and math.min(unpack(own_slots))
    end
    local all = redis.call('hgetall', slot_table)
    local lowest
    for i = 1, #all, 2 do
        local slot = tonumber(all[i])
        if all[i + 1]:sub(1, 16) == id and slot then
            lowest = math.min(lowest or slot, slot)
        end
    end
    return lowest
end

local answer, is_new
if free >= 1 or redis.call('zscore', permits, id) then
    local entries, own_slots = first_entries()
    is_new = free >= 1 and redis.call('zadd', permits, 'nx', ends, id) == 1
    if is_new then
        free = redis.call('decrby', count, '1')
        if own_slots[1] then
            redis.call('hdel', slot_table, unpack(own_slots))
        end
    end
    local slot = not is_new and lowest_own_slot(own_slots)
    answer = note_slot(slot or lowest_free_slot(entries), is_new)
end
if type(answer) == 'table' then
    return answer
elseif answer and not is_new then
    redis.call('zadd', permits, 'gt', ends, id)
end
if answer and (attempt == 'again' or attempt == 'foreign') then
--@include leave_queue
    leave_queue(channel, client_channel, attempt)
end
if free > 0 and (reclaimed > 0 or answer and attempt and attempt ~= 'new') then
--@include publish
--@include notify_waiter
    if reclaimed > 0 then
--@include notify_free
        notify_free(channel, free, reclaimed)
    end
    notify_waiter(channel, count, 0, reclaimed > 0 and '0')
end
if answer then
    return answer
end
local ms = first[1] and tonumber(first[2]) < NEVER and
    math.max(end_of(first[1], first[2]) - now, 0) or SCRIPT_BUSY_NO_TTL
if not attempt then
    return ms
end
--@include register
return {ms, register(channel, client_channel, attempt)}
