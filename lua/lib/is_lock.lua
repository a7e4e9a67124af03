-- is_lock: tells a lock's hash from an application's.

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
