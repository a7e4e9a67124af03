-- set_lower_count: releases one level of a re-entrant hold.
--
-- Provides set_lower_count(key, owner, has, target).

-- Lowers the owner's hold count from `has` to `target`; never raises it.
-- Returns SCRIPT_LEVEL_RELEASED or the error. Works at maxmemory: Redis checks
-- for OOM only before a script's first write, so a no-op HDEL precedes the
-- second try.
local function set_lower_count(key, owner, has, target)
    if (tonumber(has) or math.huge) <= tonumber(target) then
        return SCRIPT_LEVEL_RELEASED
    end
    local done = redis.pcall('hset', key, owner, target)
    if type(done) == 'table' then
        redis.pcall('hdel', key, '')
        done = redis.pcall('hset', key, owner, target)
    end
    return type(done) == 'table' and done or SCRIPT_LEVEL_RELEASED
end
