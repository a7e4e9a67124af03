-- free_hold: takes the owner off the lock.
--
-- Needs owner. If this owner does not hold the lock, the script ends with -1.
-- It is not a function, for speed. Only the owner's own field is taken out: an
-- application may have put something beside it. A full server does not refuse
-- that.

local gone = redis.pcall('hdel', KEYS[1], owner)
if type(gone) == 'table' then -- no right to do just that
    gone = redis.call('hget', KEYS[1], owner) and redis.call('del', KEYS[1])
end
if not gone or gone == 0 then
    return -1
end
