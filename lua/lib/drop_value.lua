-- drop_value: deletes the value that an owner published, when its hold ends.
--
-- Provides drop_value(channel, owner).

-- The key of the value is derived from the lock's channel instead of being in
-- KEYS, so that a user without access to it can end a hold. The value then
-- stays until it expires; readers ignore it, because its owner does not hold
-- the lock.
local function drop_value(channel, owner)
    local key = 'dibs_lock_value' .. (channel:match(':.*') or '')
    local value = redis.pcall('get', key)
    if type(value) == 'string' and value:match('^%S+') == owner then
        redis.pcall('del', key)
    end
end
