-- write_acquire: acquires the lock for writing, or returns how long to wait.
--
-- KEYS  1 lock hash   2 this owner's read key   3 writer intent
-- ARGV  1 owner   2 target hold count   3 lease in ms   4 ms for which new
--       readers are blocked if it must wait, '0' = not at all   5 prefix and 6
--       suffix of a read key: prefix, owner, suffix, index of a hold
--       optional, to wait in the queue: 7 to 9 as 4 to 6 of mutex_acquire
-- Returns nil if acquired; if busy, ms to wait, SCRIPT_BUSY_NO_TTL if unknown,
--       with 7 to 9 an array as mutex_acquire; SCRIPT_OUTER_HOLD_LOST if the
--       outer holds of a re-entry are gone; SCRIPT_SELF_DEADLOCK if this owner
--       reads; SCRIPT_WRONG_TYPE if the key holds another kind of lock, or a hash
--       that is no lock.
--
-- Expired readers do not count, and are removed. A re-entry never shortens the
-- lease. Idempotent.
local key, read_key, writer_intent = KEYS[1], KEYS[2], KEYS[3]
local owner, target, lease = ARGV[1], ARGV[2], ARGV[3]
local key_prefix, key_suffix = ARGV[5], ARGV[6]
local channel, client_channel, attempt = ARGV[7], ARGV[8], ARGV[9]
local writer = owner .. ':write'
local SAMPLE = 8 -- fields that are checked
--@include take_hold

-- Fast path: the lock is free, and no writer intent exists.
local in_queue = attempt == 'again' or attempt == 'foreign'
if target == '1' and not in_queue and
    redis.call('exists', key, writer_intent) == 0 then
    redis.call('hset', key, 'mode', 'write', writer, '1')
    return take_hold(key, writer, 1, '1', -2, lease)
end
--@include lock_fields
--@include register

local ttl = redis.call('pttl', key)
local mode = ttl ~= -2 and redis.call('hget', key, 'mode')

-- Blocks new readers and registers the client. Returns the result of the
-- script.
local function busy(ms)
    if ARGV[4] ~= '0' then
        redis.pcall('set', writer_intent, owner, 'px', ARGV[4])
    end
    if client_channel then
        return {ms, register(channel, client_channel, attempt)}
    end
    return ms
end

-- Returns the TTL of the first of these readers that has not expired, -2 if all
-- expired. fields: field, value, field, ... Redisson has a read key for each
-- hold.
local function reader_ttl(fields)
    for i = 1, #fields, 2 do
        for n = 1, math.min(tonumber(fields[i + 1]) or 0, 1000) do
            local ms = redis.call('pttl', key_prefix .. fields[i] ..
                                  key_suffix .. n)
            if ms ~= -2 then
                return ms
            end
        end
    end
    return -2
end

-- Returns how long to wait for the readers, -2 if all expired; false if the
-- hash is no lock. Checks all readers only if a sample of them expired.
local function readers_ttl()
    local fields = redis.call('hrandfield', key, SAMPLE, 'withvalues')
    local ms = all_holds(fields) and reader_ttl(fields)
    if ms == -2 and #fields == 2 * SAMPLE then
        fields = redis.call('hgetall', key)
        ms = all_holds(fields) and reader_ttl(fields)
    end
    return ms
end

if ttl ~= -2 and mode ~= 'read' and mode ~= 'write' then
    return SCRIPT_WRONG_TYPE
end
local has = 0
if mode == 'write' then
    has = tonumber(redis.call('hget', key, writer) or 0) or 0
    if has == 0 and target ~= '1' then
        return SCRIPT_OUTER_HOLD_LOST
    elseif has == 0 then
        local sample = redis.call('hrandfield', key, SAMPLE, 'withvalues')
        return all_holds(sample) and busy(ttl) or SCRIPT_WRONG_TYPE
    end
elseif target ~= '1' then
    return SCRIPT_OUTER_HOLD_LOST
elseif mode then
    local ms = readers_ttl()
    if not ms then
        return SCRIPT_WRONG_TYPE
    elseif ms ~= -2 then
        if redis.call('hexists', key, owner) == 1 and
            redis.call('exists', read_key) == 1 then
            return SCRIPT_SELF_DEADLOCK
        end
        return busy(ms)
    end
    redis.call('del', key)
    ttl = -2
end

if ttl == -2 then
    redis.call('hset', key, 'mode', 'write', writer, target)
    has = tonumber(target)
end
local failed = take_hold(key, writer, has, target, ttl, lease, function()
    redis.call('hdel', key, writer)
    if redis.call('hlen', key) == 1 then
        redis.call('del', key)
    end
end)
if not failed then
    redis.call('del', writer_intent)
    if in_queue then
--@include leave_queue
        leave_queue(channel, client_channel, attempt)
    end
end
return failed
