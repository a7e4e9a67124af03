-- new_lease: a hold is handed over, and its lease begins.
--
-- Needs key, lease, holds: of the old and of the new owner; and channel, or
-- nothing. Gives sooner: the lock ends sooner than before, and somebody may
-- want to know.

-- A new owner, a new lease; but a second sending only lengthens.
local left = (channel or not holds[1]) and redis.call('pttl', key)
if holds[1] or left < tonumber(lease) then
    redis.call('pexpire', key, lease)
end
local sooner = channel and holds[1] and
    (left < 0 or left > tonumber(lease))
