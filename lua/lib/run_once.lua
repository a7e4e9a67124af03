-- guard: a request that must be carried out once, however often it is sent.

local GUARD_MS = 60000 -- longer than a request can be on its way

-- Runs work, unless this request was carried out before. What work gives is
-- kept, as text, and given to a second sending. An error of work is not kept.
local function run_once(guard, work)
    if not redis.call('set', guard, '', 'nx', 'px', GUARD_MS) then
        return redis.call('get', guard)
    end
    local answer, fault = work()
    if fault then
        redis.call('del', guard)
        return fault
    end
    redis.call('set', guard, answer, 'px', GUARD_MS)
    return answer
end
