-- write_acquire: take the lock alone, or say how long to wait.
--
-- KEYS  1 lock hash   2 this owner's read key   3 key of a waiting writer
-- ARGV  1 owner   2 holds it will then have   3 lease in ms
--       4 ms to keep new readers out if it has to wait, '0' = not at all
--       5 key_prefix and 6 key_suffix of the name of an owner's read key, which has the
--       number of a hold behind it   and to be called when it is free, 7 to
--       9 as 4 to 6 of mutex_acquire
-- Gives nil when taken; >= -1 when busy for so many ms, with 7 to 9 an array
--       as mutex_acquire; -3 when the outer holds of a re-entry are gone; -5
--       when this owner reads, and so would wait for itself; -6 when the key
--       holds another kind of lock, or a hash that is no lock.
--
-- Readers whose lease is over do not count, and go. A re-entry never shortens
-- the lease. Twice is harmless.
local key, mine, writer_intent = KEYS[1], KEYS[2], KEYS[3]
local owner, target, lease = ARGV[1], ARGV[2], ARGV[3]
local key_prefix, key_suffix = ARGV[5], ARGV[6]
local writer = owner .. ':write'
local FEW = 8 -- fields that are looked at
--@include take_hold

-- Nearly always nobody has it and no writer waits.
local in_queue = ARGV[9] == 'again' or ARGV[9] == 'foreign'
if target == '1' and not in_queue and
    redis.call('exists', key, writer_intent) == 0 then
    redis.call('hset', key, 'mode', 'write', writer, '1')
    return take_hold(key, writer, 1, '1', -2, lease)
end
--@include is_lock
--@include register

local left = redis.call('pttl', key)
local mode = left ~= -2 and redis.call('hget', key, 'mode')

local function busy(ms)
    if ARGV[4] ~= '0' then
        redis.pcall('set', writer_intent, owner, 'px', ARGV[4])
    end
    if ARGV[8] then
        return {ms, register(ARGV[7], ARGV[8], ARGV[9])}
    end
    return ms
end

-- How long one of these owners still has, -2 when none of them lives. all:
-- field, value and so on. Another client may have a read key for each hold.
local function lease_left(all)
    for i = 1, #all, 2 do
        for n = 1, math.min(tonumber(all[i + 1]) or 0, 1000) do
            local ms = redis.call('pttl', key_prefix .. all[i] .. key_suffix .. n)
            if ms ~= -2 then
                return ms
            end
        end
    end
    return -2
end

-- How long to wait for the readers: a few tell, or all. nil: it is no lock.
local function readers()
    local some = redis.call('hrandfield', key, FEW, 'withvalues')
    local ms = all_holds(some) and lease_left(some)
    if ms == -2 and #some == 2 * FEW then
        some = redis.call('hgetall', key)
        ms = all_holds(some) and lease_left(some)
    end
    return ms
end

if left ~= -2 and mode ~= 'read' and mode ~= 'write' then
    return -6
end
local has = 0
if mode == 'write' then
    has = tonumber(redis.call('hget', key, writer) or 0) or 0
    if has == 0 and target ~= '1' then
        return -3
    elseif has == 0 then
        local some = redis.call('hrandfield', key, FEW, 'withvalues')
        return all_holds(some) and busy(left) or -6
    end
elseif target ~= '1' then
    return -3
elseif mode then
    local most = readers()
    if not most then
        return -6
    elseif most ~= -2 then
        if redis.call('hexists', key, owner) == 1 and
            redis.call('exists', mine) == 1 then
            return -5
        end
        return busy(most)
    end
    redis.call('del', key)
    left = -2
end

if left == -2 then
    redis.call('hset', key, 'mode', 'write', writer, target)
    has = tonumber(target)
end
local failed = take_hold(key, writer, has, target, left, lease, function()
    redis.call('hdel', key, writer)
    if redis.call('hlen', key) == 1 then
        redis.call('del', key)
    end
end)
if not failed then
    redis.call('del', writer_intent)
    if in_queue then
--@include leave_queue
        leave_queue(ARGV[7], ARGV[8], ARGV[9])
    end
end
return failed
