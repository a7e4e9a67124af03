-- handover_lease: starts the new owner's lease when a hold is handed over.
--
-- Requires key, lease, holds (hold counts of the old and the new owner), and
-- channel (or nil). Provides ends_sooner: whether the lock ends sooner than
-- before, so that its waiters must be notified.

-- The hand-over sets the lease; a repeated one, which finds the new owner, only
-- lengthens it.
local ttl = (channel or not holds[1]) and redis.call('pttl', key)
if holds[1] or ttl < tonumber(lease) then
    redis.call('pexpire', key, lease)
end
local ends_sooner = channel and holds[1] and
    (ttl < 0 or ttl > tonumber(lease))
