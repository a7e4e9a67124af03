-- read_release: releases one read hold; an owner's last release ends its
-- reading, the last reader's frees the lock.
--
-- KEYS  1 lock hash   2 this owner's read key   3 channel
-- ARGV  1 owner   2 target hold count   3 prefix and 4 suffix of a read key:
--       prefix, owner, suffix, index of a hold   5 another owner of the same
--       client that reads, as far as the client knows; '' = unknown   then the
--       publish commands (none: 'publish')
-- Returns if its reading ended SCRIPT_FREED plus the number of clients woken;
--       SCRIPT_LEVEL_RELEASED; SCRIPT_NOT_HELD if this owner does not read, or
--       its lease expired.
--
-- Expired readers do not count, and are removed when found. Whether a reader
-- remains is decided with as few look-ups as possible, so that the cost does
-- not grow with the number of readers: first the known reader, if its lease is
-- about as long as the lock's; else a sample of readers; only if all of the
-- sample expired, all readers. Redisson has a read key for each hold of an
-- owner: one that exists is enough. If the lock would outlive its readers by
-- far, its TTL is shortened, but never below the longest read lease. A field
-- that is neither an owner nor the mode is an application's, and stays.
-- Idempotent. Works at maxmemory.
local key, read_key, channel = KEYS[1], KEYS[2], KEYS[3]
local owner, target = ARGV[1], ARGV[2]
local key_prefix, key_suffix = ARGV[3], ARGV[4]
local known_reader, PUBLISH_ARGS = ARGV[5], 6
local SAMPLE, SMALL, MAX_HOLDS = 4, 16, 1000

-- The known reader is in the hash, so this is the lock that the client means.
if target == '0' and known_reader ~= '' and known_reader ~= owner and
    redis.call('hexists', key, known_reader) == 1 then
    local ttl = redis.call('pttl', key)
    local known_ttl = redis.call('pttl', key_prefix .. known_reader ..
                                 key_suffix .. '1')
    if ttl >= 0 and 2 * known_ttl >= ttl then
        local removed = redis.call('hdel', key, owner)
        return redis.call('del', read_key) == 1 and removed == 1 and
            SCRIPT_FREED or SCRIPT_NOT_HELD
    end
end
--@include publish

-- The lock is free: notifies waiters. Returns the result of the script.
local function notify(was_held)
    local receivers = publish(channel, '0')
    if receivers >= 0 or receivers_unknown then
--@include notify_waiter
        receivers = notify_waiter(channel, key, receivers, '2')
    end
    return was_held and SCRIPT_FREED + math.max(receivers, 0) or
        SCRIPT_NOT_HELD
end

-- Fast path: the hash has the mode and this owner only.
local sample = target == '0' and
    redis.call('hrandfield', key, SAMPLE, 'withvalues')
local two = sample and #sample == 4 and
    {[sample[1]] = sample[2], [sample[3]] = sample[4]}
if two and two[owner] and two.mode and two.mode ~= 'write' then
    return notify(redis.call('del', key, read_key) == 2)
end
--@include set_lower_count

local found = redis.call('hmget', key, owner, 'mode')
if not found[1] or not found[2] then
    redis.call('del', read_key)
    return SCRIPT_NOT_HELD
elseif target ~= '0' and redis.call('exists', read_key) == 1 then
    return set_lower_count(key, owner, found[1], target)
end

local has_foreign_field = false
local was_held = redis.call('del', read_key) == 1
redis.call('hdel', key, owner)
if found[2] == 'write' then
    return was_held and SCRIPT_FREED or SCRIPT_NOT_HELD
end
--@include lock_fields

-- Returns the longest lease of these readers, -1 if all expired; stops once a
-- lease of `enough` ms is found. Removes expired readers. fields: field, value,
-- field, ...
local function longest_lease(fields, enough)
    local longest = -1
    for i = 1, #fields, 2 do
        local lease = -1
        local holds = fields[i] ~= owner and tonumber(fields[i + 1]) or 0
        for n = 1, math.min(holds, MAX_HOLDS) do
            local ms = redis.call('pttl', key_prefix .. fields[i] ..
                                  key_suffix .. n)
            lease = math.max(lease, ms == -1 and math.huge or ms)
            if lease >= enough then
                return lease
            end
        end
        if fields[i] ~= 'mode' and not is_hold(fields[i], '1') then
            has_foreign_field = true
        elseif lease < 0 and fields[i] ~= 'mode' then
            redis.call('hdel', key, fields[i])
        end
        longest = math.max(longest, lease)
    end
    return longest
end

-- Returns whether another reader remains.
local function has_reader()
    local ttl = redis.call('pttl', key)
    local enough = ttl < 0 and math.huge or ttl / 2
    sample = sample or redis.call('hrandfield', key, SAMPLE, 'withvalues')
    local longest, is_all = longest_lease(sample, enough), #sample < 2 * SAMPLE
    if not is_all and (longest < 0 or
        (longest < enough and redis.call('hlen', key) <= SMALL)) then
        longest, is_all = longest_lease(redis.call('hgetall', key), enough),
            true
    end
    if is_all and longest >= 0 and longest < enough and longest < math.huge then
        redis.call('pexpire', key, math.max(longest, 1))
    end
    return longest >= 0
end

if has_reader() then
    return was_held and SCRIPT_FREED or SCRIPT_NOT_HELD
elseif not has_foreign_field then
    redis.call('del', key)
end
return notify(was_held)
