-- take_hold: the count and the lease of a hold.
--
-- Gives take_hold(key, owner, has, target, left, lease, undo).

-- Raises the owner's count from `has` to `target`, and the lease from `left`
-- to `lease` ms; neither is ever lowered. Gives false. Where the server refuses
-- the lease, the count is put back and the error is given: a hash never stays
-- without a TTL. undo() takes back a first hold; nil: the key is deleted. An
-- owner that has its count already still writes, so that a WAIT behind the
-- script counts this hold.
local function take_hold(key, owner, has, target, left, lease, undo)
    local wanted = tonumber(target)
    if has < wanted then
        redis.call('hset', key, owner, target)
    end
    if left >= tonumber(lease) then
        if has >= wanted then
            redis.pcall('pexpire', key, left)
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
