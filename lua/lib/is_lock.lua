-- is_lock: tells a lock's hash from an application's.
--
-- Gives UUID, is_hold(field, value), all_holds(all), is_lock(hash).

-- An owner is a UUID, a colon and a number; a transaction puts more behind it.
local UUID = '^%x+%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x+:%-?%d'

-- Is this field of a hash an owner with a count?
local function is_hold(field, value)
    return field:find(UUID) and field:sub(37, 37) == ':' and
        value:find('^[1-9]%d*$')
end

-- Does a lock have these fields? A lock has owners with a count, perhaps the
-- mode, and nothing else. all: field, value and so on.
local function all_holds(all)
    local owners = 0
    for i = 1, #all, 2 do
        local mode = all[i] == 'mode' and
            (all[i + 1] == 'read' or all[i + 1] == 'write')
        if not mode and not is_hold(all[i], all[i + 1]) then
            return false
        end
        owners = owners + (mode and 0 or 1)
    end
    return owners > 0 or #all == 0
end

-- Is the hash a lock that one owner has alone? An application's hash is left
-- alone. A user without the right to read the hash takes it for a lock.
local function is_lock(hash)
    local count = redis.pcall('hlen', hash)
    if type(count) == 'table' or count > 32 then
        return type(count) == 'table'
    end
    local all = redis.pcall('hgetall', hash)
    return all.err or all_holds(all)
end
