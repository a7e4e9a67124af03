-- semaphore_drain: removes all free permits.
--
-- KEYS  1 number of free permits   2 guard of this request
-- Returns the number removed, as a string; an error if the key holds no number.
--
-- Idempotent: the guard keeps the result. A negative number stays: raising it
-- to 0 would create permits when acquired ones are released.
local count, guard = KEYS[1], KEYS[2]
--@include parse_int
--@include run_once

return run_once(guard, function()
    local free = redis.pcall('get', count)
    if type(free) == 'table' then
        return nil, free
    elseif free and not parse_int(free) then
        return nil, redis.error_reply(
            'WRONGTYPE the key holds no number of permits')
    elseif not free or parse_int(free) <= 0 then
        return '0'
    end
    local done = redis.pcall('decrby', count, free)
    if type(done) == 'table' then
        return nil, done
    end
    return free
end)
