-- basic_force: end one owner's hold, however often it holds.
--
-- KEYS  1 lock hash
-- ARGV  1 owner field   2 channel   then the commands to publish with; none =
--       'publish'
-- Gives 1 when it ended something, 0 when this owner did not hold the lock, -6
--       when the key holds a hash that is no lock.
--
-- It names the owner it means, so that one that comes late cannot end a
-- stranger's hold. Also used to take back what was granted too late. A
-- read-write lock of that name is not ours to end.

-- An owner is a UUID, a colon and a number; a transaction puts more behind it.
local UUID = '^%x+%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x+:%-?%d'

-- Is the hash a lock? A lock has owners with a count in it and nothing else.
-- What an application keeps there is left alone. Who may not look takes it for
-- one.
local function is_lock(hash)
    local count = redis.pcall('hlen', hash)
    if type(count) == 'table' or count > 32 then
        return type(count) == 'table'
    end
    local all = redis.pcall('hgetall', hash)
    for i = 1, #all, 2 do
        if not all[i]:find(UUID) or all[i]:sub(37, 37) ~= ':' or
            not all[i + 1]:find('^[1-9]%d*$') then
            return false
        end
    end
    return true
end

local found = redis.call('hmget', KEYS[1], ARGV[1], 'mode')

if found[2] then
    return redis.error_reply('WRONGTYPE the key holds a read-write lock')
elseif not is_lock(KEYS[1]) then
    return -6
elseif not found[1] then
    return 0
end
redis.call('del', KEYS[1])
for i = 3, math.max(3, #ARGV) do
    redis.pcall(ARGV[i] or 'publish', ARGV[2], '0')
end
return 1
