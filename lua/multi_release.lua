-- multi_release: give back one hold of each of several locks.
--
-- KEYS  lock hashes; behind them, for each write lock among them, the key of a
--       waiting writer
-- ARGV  1 ms to leave a lock taken, by nobody, when that was its last hold; '0'
--       = free it; then for each lock: 'w' for a write lock, else 'p'; owner;
--       holds it will then have; channel
-- Gives a number for each: >= 1 when freed: 1 + how many heard of it; 0 when
--       held once less; -1 when this owner does not hold it; -6 when the key is
--       something else.
--
-- One that is not held, or not a lock any more, spoils nothing for the others.
-- Otherwise as basic_release and write_release.
local keep, gates, verdicts = ARGV[1], (#ARGV - 1) / 4, {}
local gone, calls = {}, {} -- plain locks that end, and whom to tell of which

local function tell(channel, payload)
    local heard = redis.pcall('publish', channel, payload)
    return type(heard) == 'number' and 1 + heard or 1
end

-- A number below -100: it is to be deleted with the others.
local function release(key, reader, target, channel, gate)
    local owner = gate and reader .. ':write' or reader
    local has = redis.pcall('hget', key, owner)
    if type(has) == 'table' then
        return -6
    elseif not has then
        return -1
    elseif target ~= '0' then
        if tonumber(has) > tonumber(target) then
            redis.call('hset', key, owner, target)
        end
        return 0
    end
    local reads = gate and redis.call('hexists', key, reader) == 1
    if keep ~= '0' and not reads then
        redis.call('pexpire', key, keep)
        return 1
    end
    if not gate then
        gone[#gone + 1] = key
        calls[#gone] = channel
        return -#gone - 100
    end
    redis.call('hdel', key, owner)
    redis.call('del', gate)
    if redis.call('hlen', key) <= 1 then
        redis.call('del', key)
    else
        redis.call('hset', key, 'mode', 'read')
    end
    local heard = tell(channel, '1')
    tell(channel, '0')
    return heard
end

for i = 1, (#ARGV - 1) / 4 do
    local gate
    if ARGV[4 * i - 2] == 'w' then
        gates = gates + 1
        gate = KEYS[gates]
    end
    verdicts[i] = release(KEYS[i], ARGV[4 * i - 1], ARGV[4 * i],
                          ARGV[4 * i + 1], gate)
end
if #gone > 0 then
    redis.call('del', unpack(gone))
end
for i, verdict in ipairs(verdicts) do
    if verdict < -100 then
        verdicts[i] = tell(calls[-verdict - 100], '0')
    end
end
return verdicts
