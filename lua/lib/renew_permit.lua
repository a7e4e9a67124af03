-- renew_permit: renews the permits of slots and semaphores.
--
-- Requires now. Provides is_wrong_type(reply), renew_permit(list, id, lease,
-- refused).

-- Returns whether the reply is the error for a key of another type.
local function is_wrong_type(reply)
    return type(reply) == 'table' and reply.err:find('^WRONGTYPE') ~= nil
end

-- Sets the end of a permit in the sorted set `list` to `lease` ms from now, if
-- it is sooner. Returns the letter for this permit; `refused` if the server
-- refuses. Works at maxmemory: Redis checks for OOM only before a script's
-- first write, so a no-op ZREM precedes the second try.
local function renew_permit(list, id, lease, refused)
    local score = redis.pcall('zscore', list, id)
    if type(score) == 'table' then
        return is_wrong_type(score) and 'w' or refused
    elseif not score or tonumber(score) <= now then
        return '0'
    elseif tonumber(score) < now + lease then
        local done = redis.pcall('zadd', list, 'xx', now + lease, id)
        if type(done) == 'table' then
            redis.pcall('zrem', list, '')
            done = redis.pcall('zadd', list, 'xx', now + lease, id)
        end
        return type(done) == 'table' and refused or '1'
    end
    return '1'
end
