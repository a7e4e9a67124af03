-- multi_release: releases one hold of each of several locks.
--
-- KEYS  lock hashes; then, for each write lock among them, the key of its
--       writer intent
-- ARGV  1 hold-off: ms for which a lock stays taken after its last release, '0'
--       frees it   2 number of locks; then for each lock: 'p' (plain) or 'w'
--       (write lock) followed by the target hold count; owner, '' = as the one
--       before; channel; then the publish commands (none: 'publish')
-- Returns a number for each lock: if freed SCRIPT_FREED plus the number of
--       receivers; SCRIPT_LEVEL_RELEASED; SCRIPT_NOT_HELD by this owner;
--       SCRIPT_WRONG_TYPE if the key has another type; SCRIPT_MEMBER_FAILED if the
--       server refuses to lower the count.
--
-- A lock that is not held, or no lock any more, does not affect the others.
-- Else as mutex_release and write_release.
local hold_off, count = ARGV[1], tonumber(ARGV[2])
local PUBLISH_ARGS = 3 * count + 3
local next_intent, verdicts, owner = count, {}, nil
local freed, queues = {}, {} -- indices and wait queues of freed locks
--@include publish
--@include notify_waiter
--@include shorten_ttl
--@include set_lower_count

-- Ends writing; the owner may go on reading. Returns the number of receivers.
local function end_write(key, reader, channel, writer_intent)
    redis.call('hdel', key, reader .. ':write')
    if redis.call('hlen', key) <= 1 then
        redis.call('del', key, writer_intent)
    else
        redis.call('del', writer_intent)
        redis.call('hset', key, 'mode', 'read')
    end
    local receivers = publish(channel, '1')
    publish(channel, '0')
    return receivers
end

-- Lock i is free. Notes its wait queue. Returns the verdict.
local function add_freed(i, receivers)
    if receivers >= 0 or receivers_unknown then
        freed[#freed + 1] = i
        queues[#queues + 1] = wait_key('waiters', ARGV[3 * i + 2])
    end
    return SCRIPT_FREED + math.max(receivers, 0)
end

for i = 1, count do
    local key, spec, channel = KEYS[i], ARGV[3 * i], ARGV[3 * i + 2]
    owner = ARGV[3 * i + 1] ~= '' and ARGV[3 * i + 1] or owner
    local field, writer_intent, target = owner, nil, spec:sub(2)
    if spec:sub(1, 1) == 'w' then
        next_intent = next_intent + 1
        writer_intent = KEYS[next_intent]
        field = owner .. ':write'
    end
    local frees = target == '0' and hold_off == '0' and not writer_intent
    local has = redis.pcall(frees and 'hdel' or 'hget', key, field)
    if frees and type(has) == 'table' then -- the user may not HDEL
        has = redis.pcall('hget', key, field)
        has = has and (has.err and has or redis.call('del', key))
    end
    if type(has) == 'table' then
        verdicts[i] = SCRIPT_WRONG_TYPE
    elseif not has or has == 0 then
        verdicts[i] = SCRIPT_NOT_HELD
    elseif target ~= '0' then
        local done = set_lower_count(key, field, has, target)
        verdicts[i] = type(done) == 'table' and SCRIPT_MEMBER_FAILED or done
    elseif hold_off ~= '0' and
        not (writer_intent and redis.call('hlen', key) > 2) then
        if shorten_ttl(key, hold_off) then
            if writer_intent then
                publish(channel, '1')
            end
            publish(channel, '0')
        end
        verdicts[i] = SCRIPT_FREED
    elseif writer_intent then
        verdicts[i] = add_freed(i, end_write(key, owner, channel,
                                             writer_intent))
    else
        verdicts[i] = add_freed(i, publish(channel, '0'))
    end
end
-- One EXISTS for all queues: most of the time none has a waiter.
if #queues > 0 and redis.pcall('exists', unpack(queues)) ~= 0 then
    for _, i in ipairs(freed) do
        notify_waiter(ARGV[3 * i + 2], KEYS[i], 0, '2')
    end
end
return verdicts
