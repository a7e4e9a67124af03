-- write_leave: a writer that waited does so no more; or its hold is to end.
--
-- KEYS  1 lock hash   2 channel   3 key of a waiting writer
-- ARGV  1 owner   2 '1' to end its hold as well   then the commands to publish
--       with; none = 'publish'
-- Gives 1 when a hold was ended, else 0; -6 when the key holds a hash that is
--       no lock.
local key, channel, gate = KEYS[1], KEYS[2], KEYS[3]
local writer = ARGV[1] .. ':write'
local ended, tell = 0, false
-- An owner is a UUID, a colon and a number; a transaction puts more behind it.
local UUID = '^%x+%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x+:%-?%d'

-- Are these owners with a count, and nothing else but the mode? Then it is a
-- lock; what an application keeps in a hash is left alone. all: field, value
-- and so on.
local function is_lock(all)
    local owners = 0
    for i = 1, #all, 2 do
        local mode = all[i] == 'mode'
        if mode and all[i + 1] ~= 'read' and all[i + 1] ~= 'write' or
            not mode and (not all[i]:find(UUID) or
            all[i]:sub(37, 37) ~= ':' or
            not all[i + 1]:find('^[1-9]%d*$')) then
            return false
        end
        owners = owners + (mode and 0 or 1)
    end
    return owners > 0
end

if redis.pcall('get', gate) == ARGV[1] then
    redis.call('del', gate)
    tell = true
end
if ARGV[2] == '1' and redis.call('exists', key) == 1 and
    not is_lock(redis.call('hrandfield', key, 8, 'withvalues')) then
    ended = -6
elseif ARGV[2] == '1' and redis.call('hexists', key, writer) == 1 then
    redis.call('hdel', key, writer)
    if redis.call('hlen', key) <= 1 then
        redis.call('del', key)
    else
        redis.call('hset', key, 'mode', 'read')
    end
    ended, tell = 1, true
end
if tell then
    for i = 3, math.max(3, #ARGV) do
        redis.pcall(ARGV[i] or 'publish', channel, '1')
        redis.pcall(ARGV[i] or 'publish', channel, '0')
    end
end
return ended
