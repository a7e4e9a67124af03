-- take_free_lock: acquires a lock that has no holder. Ends the script.
--
-- Requires owner, lease. Inlined, not a function, for speed: most acquires end
-- here. If the server refuses the TTL, the hold is rolled back: a lock must
-- never exist without a TTL.

    redis.call('hset', KEYS[1], owner, '1')
    local done = redis.pcall('pexpire', KEYS[1], lease)
    if type(done) ~= 'table' then
        return false
    end
    redis.call('del', KEYS[1])
    return {err = done.err .. ' (pexpire)'}
