-- renew_permit: what the scripts that renew permits share.
--
-- Gives now: the server's time in ms; is_other_type, renew_permit.

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Is this the answer for a key of another type?
local function is_other_type(answer)
    return type(answer) == 'table' and answer.err:find('^WRONGTYPE') ~= nil
end

-- Moves the end of a permit in this list to `lease` ms from now, if it is
-- sooner. Gives the letter of the permit; `bad` where the server refuses. A full
-- server lets it pass once a script has written: to take out what is not there
-- is enough for that.
local function renew_permit(list, id, lease, bad)
    local score = redis.pcall('zscore', list, id)
    if type(score) == 'table' then
        return is_other_type(score) and 'w' or bad
    elseif not score or tonumber(score) <= now then
        return '0'
    elseif tonumber(score) < now + lease then
        local done = redis.pcall('zadd', list, 'xx', now + lease, id)
        if type(done) == 'table' then
            redis.pcall('zrem', list, '')
            done = redis.pcall('zadd', list, 'xx', now + lease, id)
        end
        return type(done) == 'table' and bad or '1'
    end
    return '1'
end
