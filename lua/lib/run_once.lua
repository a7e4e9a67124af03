-- run_once: makes a request idempotent that is not so by itself.
--
-- Provides run_once(guard, work).

local GUARD_MS = 60000 -- longer than a request can be in flight

-- Runs work() unless this request was executed before. The key `guard` keeps
-- the result of work(), a string, as the reply to a repeated request. work()
-- returns nil and an error on failure: nothing is kept then.
local function run_once(guard, work)
    if not redis.call('set', guard, '', 'nx', 'px', GUARD_MS) then
        return redis.call('get', guard)
    end
    local result, err = work()
    if err then
        redis.call('del', guard)
        return err
    end
    redis.call('set', guard, result, 'px', GUARD_MS)
    return result
end
