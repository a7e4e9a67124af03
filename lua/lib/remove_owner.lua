-- remove_owner: removes the owner's field from the lock.
--
-- Requires owner. Ends the script with SCRIPT_NOT_HELD if this owner does not
-- hold the lock. Inlined, not a function, for speed. Deletes the field, not the
-- key: an application may have added fields. HDEL works at maxmemory.

local removed = redis.pcall('hdel', KEYS[1], owner)
if type(removed) == 'table' then -- the user may not HDEL
    removed = redis.call('hget', KEYS[1], owner) and redis.call('del', KEYS[1])
end
if not removed or removed == 0 then
    return SCRIPT_NOT_HELD
end
