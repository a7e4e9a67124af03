-- keep: the lock stays taken, by nobody, for a while.
--
-- Gives shorten_ttl(key, keep).

-- The lock's key ends in `keep` ms. True if that is sooner than before: those
-- who wait may sleep until the old end, and must be told to look again.
local function shorten_ttl(key, keep)
    local left = redis.call('pttl', key)
    redis.call('pexpire', key, keep)
    return left < 0 or left > tonumber(keep)
end
