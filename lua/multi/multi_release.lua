-- multi_release: give back one hold of each of several locks.
--
-- KEYS  lock hashes; behind them, for each write lock among them, the key of a
--       waiting writer
-- ARGV  1 ms to leave a lock taken, by nobody, when that was its last hold; '0'
--       = free it; 2 number of locks; then for each lock: 'p', or 'w' for a
--       write lock, with the holds it will then have behind it; owner, '' = as
--       the one before; channel; then the commands to publish with; none =
--       'publish'
-- Gives a number for each: >= 1 when freed: 1 + how many heard of it; 0 when
--       held once less; -1 when this owner does not hold it; -6 when the key is
--       something else; -8 when it should be held once less, and that is
--       refused.
--
-- One that is not held, or not a lock any more, spoils nothing for the others.
-- Otherwise as mutex_release and write_release.
local keep, count = ARGV[1], tonumber(ARGV[2])
local PUBLISH_ARGS = 3 * count + 3
local intents, verdicts, owner = count, {}, nil
local freed, queues = {}, {} -- where a client may have to be called
--@include publish
--@include notify_waiter
--@include shorten_ttl
--@include set_lower_count

local function write_ends(key, reader, channel, writer_intent)
    redis.call('hdel', key, reader .. ':write')
    if redis.call('hlen', key) <= 1 then
        redis.call('del', key, writer_intent)
    else
        redis.call('del', writer_intent)
        redis.call('hset', key, 'mode', 'read')
    end
    local heard = publish(channel, '1')
    publish(channel, '0')
    return heard
end

-- Lock i is free, and so many heard of it.
local function told(i, heard)
    if heard >= 0 or ARGV[#ARGV] == 'publish' then
        freed[#freed + 1] = i
        queues[#queues + 1] = key_of('waiters', ARGV[3 * i + 2])
    end
    return 1 + math.max(heard, 0)
end

for i = 1, count do
    local key, word, channel = KEYS[i], ARGV[3 * i], ARGV[3 * i + 2]
    owner = ARGV[3 * i + 1] ~= '' and ARGV[3 * i + 1] or owner
    local field, writer_intent, target = owner, nil, word:sub(2)
    if word:sub(1, 1) == 'w' then
        intents = intents + 1
        writer_intent = KEYS[intents]
        field = owner .. ':write'
    end
    local last = target == '0' and keep == '0' and not writer_intent
    local has = redis.pcall(last and 'hdel' or 'hget', key, field)
    if last and type(has) == 'table' then -- no right to do just that
        has = redis.pcall('hget', key, field)
        has = has and (has.err and has or redis.call('del', key))
    end
    if type(has) == 'table' then
        verdicts[i] = -6
    elseif not has or has == 0 then
        verdicts[i] = -1
    elseif target ~= '0' then
        verdicts[i] = set_lower_count(key, field, has, target) == 0 and 0 or -8
    elseif keep ~= '0' and
        not (writer_intent and redis.call('hlen', key) > 2) then
        if shorten_ttl(key, keep) then
            if writer_intent then
                publish(channel, '1')
            end
            publish(channel, '0')
        end
        verdicts[i] = 1
    elseif writer_intent then
        verdicts[i] = told(i, write_ends(key, owner, channel, writer_intent))
    else
        verdicts[i] = told(i, publish(channel, '0'))
    end
end
-- One look at all queues: nearly always no client of ours waits.
if #queues > 0 and redis.pcall('exists', unpack(queues)) ~= 0 then
    for _, i in ipairs(freed) do
        notify_waiter(ARGV[3 * i + 2], KEYS[i], 0, '2')
    end
end
return verdicts
