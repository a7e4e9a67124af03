-- multi_acquire: take several locks at once, or none of them.
--
-- KEYS  lock hashes; behind them, for each write lock among them, the key of a
--       waiting writer
-- ARGV  1 lease in ms; then for each lock: 'p', or 'w' for a write lock, with
--       the holds it will then have behind it; owner, '' = as the one before
-- Gives nil when all are taken; else which one is in the way, from 1, and why:
--       >= -1 busy for so many ms; -3 its outer holds are gone; -6 another kind
--       of lock, or no lock at all; -7 readers have it, or had it: that is for
--       write_acquire to find out.
--
-- First all are looked at, then all are taken; nothing can come between. As
-- with each lock by itself a re-entry never shortens a lease, twice is
-- harmless, and no hash stays without a TTL.
local lease, count = ARGV[1], (#ARGV - 1) / 2
local owners, simple = {}, true

for i = 1, count do
    local owner = ARGV[2 * i + 1]
    owners[i] = owner ~= '' and owner or owners[i - 1]
    simple = simple and ARGV[2 * i] == 'p1'
end

-- Nearly always none of them is there, and none is a re-entry.
local free = redis.call('exists', unpack(KEYS, 1, count)) == 0
if free and simple then
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

local function in_the_way(item)
    local found = not free and
        redis.pcall('hmget', item.key, item.owner, 'mode')
    if found and found.err then
        return found.err:find('WRONGTYPE', 1, true) and -6 or found
    end
    item.left = free and -2 or redis.call('pttl', item.key)
    item.fresh = item.left == -2
    if item.fresh then
        item.has = 0
        return item.target ~= 1 and -3
    end
    item.has = tonumber(found[1] or 0) or 0
    local mode = found[2] or nil
    if item.writer_intent and mode == 'read' then
        return -7
    elseif (mode ~= nil) ~= (item.writer_intent ~= nil) then
        return -6
    elseif item.has == 0 then
        return item.target ~= 1 and -3 or is_lock(item.key) and item.left or -6
    end
    return false
end

local function undo(item)
    if item.target > 1 then
        redis.call('hset', item.key, item.owner, item.target - 1)
    elseif item.fresh then
        redis.call('del', item.key)
    end
end

local todo, intents = {}, count
for i = 1, count do
    local item = {key = KEYS[i], owner = owners[i],
                  target = tonumber(ARGV[2 * i]:sub(2))}
    if ARGV[2 * i]:sub(1, 1) == 'w' then
        intents = intents + 1
        item.writer_intent = KEYS[intents]
        item.owner = item.owner .. ':write'
    end
    local why = in_the_way(item)
    if type(why) == 'table' then
        return why
    elseif why then
        return {i, why}
    end
    todo[i] = item
end

for i, item in ipairs(todo) do
    if item.fresh and item.writer_intent then
        redis.call('hset', item.key, 'mode', 'write', item.owner, 1)
    elseif item.has < item.target then
        redis.call('hset', item.key, item.owner, item.target)
    end
    local short = item.left < tonumber(lease)
    local done = short and redis.pcall('pexpire', item.key, lease)
    if type(done) == 'table' then
        for j = 1, i do
            undo(todo[j])
        end
        return done
    end
    if not short and item.has >= item.target then
        redis.pcall('pexpire', item.key, item.left) -- so that a WAIT counts it
    end
    if item.writer_intent then
        redis.call('del', item.writer_intent)
    end
end
return false
