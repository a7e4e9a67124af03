-- set_lower_count: held once less.
--
-- Gives set_lower_count(key, owner, has, target).

-- Lowers the owner's count from `has` to `target`; never raises it. Gives 0, or
-- the error. A full server refuses that, but not once a script has written: to
-- take out an empty field that is not there is enough.
local function set_lower_count(key, owner, has, target)
    if (tonumber(has) or math.huge) <= tonumber(target) then
        return 0
    end
    local done = redis.pcall('hset', key, owner, target)
    if type(done) == 'table' then
        redis.pcall('hdel', key, '')
        done = redis.pcall('hset', key, owner, target)
    end
    return type(done) == 'table' and done or 0
end
