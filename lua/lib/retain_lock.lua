-- retain_lock: a release after which the lock stays taken. Ends the script.
--
-- Requires owner, target, hold_off, set_lower_count, shorten_ttl, publish, and
-- first_waiter_channel(), which returns the channel of the first waiter, or
-- nil. Returns SCRIPT_LEVEL_RELEASED; SCRIPT_FREED if the lock stays taken for
-- `hold_off` ms; SCRIPT_NOT_HELD.

    local has = redis.call('hget', KEYS[1], owner)
    if not has then
        return SCRIPT_NOT_HELD
    elseif target ~= '0' then
        return set_lower_count(KEYS[1], owner, has, target)
    end
    local waiter_channel = shorten_ttl(KEYS[1], hold_off) and
        first_waiter_channel()
    if waiter_channel then
        publish(waiter_channel, '0')
    end
    return SCRIPT_FREED
