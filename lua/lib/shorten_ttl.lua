-- shorten_ttl: keeps a lock taken after its last release, without an owner that
-- uses it (the hold-off of a release).
--
-- Provides shorten_ttl(key, hold_off).

-- Sets the key's TTL to `hold_off` ms. Returns whether that is sooner than
-- before: waiters may sleep until the old end, so they must be notified.
local function shorten_ttl(key, hold_off)
    local ttl = redis.call('pttl', key)
    redis.call('pexpire', key, hold_off)
    return ttl < 0 or ttl > tonumber(hold_off)
end
