-- drop_value: takes away what an owner published, when its hold is ended.
--
-- Gives drop_value(channel, owner).

-- The key of the value is made from the name of the lock's channel. It is not
-- in KEYS, so that a user without a right to it can end a hold all the same:
-- then the value stays until its time is over, and counts for nobody.
local function drop_value(channel, owner)
    local key = 'dibs_lock_value' .. (channel:match(':.*') or '')
    local value = redis.pcall('get', key)
    if type(value) == 'string' and value:match('^%S+') == owner then
        redis.pcall('del', key)
    end
end
