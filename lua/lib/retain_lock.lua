-- keep_hold: a release that does not free the lock. The script ends with it.
--
-- Needs owner, target, keep, set_lower_count, shorten_ttl, publish, and first_waiter_channel(): the
-- channel of who looks first, or nothing. Answers 0 when held once less; 1 when
-- the lock stays taken, by nobody, for `keep` ms; -1 when this owner does not
-- hold it.

    local has = redis.call('hget', KEYS[1], owner)
    if not has then
        return -1
    elseif target ~= '0' then
        return set_lower_count(KEYS[1], owner, has, target)
    end
    local ear = shorten_ttl(KEYS[1], keep) and first_waiter_channel()
    if ear then
        publish(ear, '0')
    end
    return 1
