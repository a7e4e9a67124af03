-- token: issues the tokens of a fenced lock.
--
-- Provides next_token(key, small).

local WEEK = 604800000 -- ms for which the last token is kept

-- Issues a token, as a string: the last token plus one, but at least the
-- server's time in microseconds. So tokens grow even if the key expired, was
-- evicted or lost with its server. Small tokens are only counted, and their key
-- never expires. Error, without a write, if the key holds no integer or the
-- largest one.
local function next_token(key, small)
    local last = redis.call('get', key)
    local time = not small and redis.call('time')
    local least = time and time[1] * 1000000 + time[2]
    local is_integer = not last or last:find('^%-?%d+$')

    if least and is_integer and tonumber(last or 0) < least then
        local token = ('%.0f'):format(least)
        redis.call('set', key, token, 'px', WEEK)
        return token
    end
    local token = redis.call('incr', key)
    if least then
        redis.pcall('pexpire', key, WEEK)
    end
    return token < 2 ^ 53 and ('%.0f'):format(token) or redis.call('get', key)
end
