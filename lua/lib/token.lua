-- token: the next token of a fenced lock.

local WEEK = 604800000 -- ms for which the last token is remembered

-- Spends a token, and gives it as text. It is one more than the last one, but
-- at least the server's time in microseconds: so it does not go back when the
-- key was evicted, or lost with its server, and the key may expire. Small
-- tokens only count, and their key is left to stay. A key that holds no number,
-- or the largest there is, is an error; nothing is written then.
local function next_token(key, small)
    local last = redis.call('get', key)
    local time = not small and redis.call('time')
    local least = time and time[1] * 1000000 + time[2]
    local sound = not last or last:find('^%-?%d+$')

    if least and sound and tonumber(last or 0) < least then
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
