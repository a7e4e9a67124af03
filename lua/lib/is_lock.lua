-- is_lock: distinguishes an exclusive lock from an application's hash.
--
-- Provides what lock_fields provides, and is_lock(key).

--@include lock_fields

-- Returns whether the hash is an exclusive lock; an application's hash must not
-- be changed. True if the user may not read the hash.
local function is_lock(key)
    local count = redis.pcall('hlen', key)
    if type(count) == 'table' or count > 32 then
        return type(count) == 'table'
    end
    local fields = redis.pcall('hgetall', key)
    return fields.err or all_holds(fields)
end
