-- first_hold: takes a lock that nobody has. The script ends with it.
--
-- Needs owner, lease. It is not a function, for speed: nearly every acquire
-- ends here. Where the server refuses the lease, the hold is undone: a hash
-- never stays without a TTL.

    redis.call('hset', KEYS[1], owner, '1')
    local done = redis.pcall('pexpire', KEYS[1], lease)
    if type(done) ~= 'table' then
        return false
    end
    redis.call('del', KEYS[1])
    return {err = done.err .. ' (pexpire)'}
