-- take_hold: sets hold count and lease of a hold.
--
-- Provides take_hold(key, owner, has, target, ttl, lease, undo).

-- Raises the owner's hold count from `has` to `target`, and the key's TTL from
-- `ttl` to `lease` ms; neither is ever lowered. Returns false on success. If
-- the server refuses the TTL, the count is rolled back and the error returned:
-- a lock must never exist without a TTL. undo() rolls back a first hold; nil:
-- the key is deleted. Writes even if nothing changes, so that a WAIT after the
-- script covers this hold.
local function take_hold(key, owner, has, target, ttl, lease, undo)
    local wanted = tonumber(target)
    if has < wanted then
        redis.call('hset', key, owner, target)
    end
    if ttl >= tonumber(lease) then
        if has >= wanted then
            redis.pcall('pexpire', key, ttl)
        end
        return false
    end
    local done = redis.pcall('pexpire', key, lease)
    if type(done) ~= 'table' then
        return false
    elseif target ~= '1' then
        redis.call('hset', key, owner, wanted - 1)
    elseif undo then
        undo()
    else
        redis.call('del', key)
    end
    return {err = done.err .. ' (pexpire)'}
end
