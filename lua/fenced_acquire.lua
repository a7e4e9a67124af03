-- fenced_acquire: take the lock and spend a token, or say how long its holder
-- still has.
--
-- KEYS  1 lock hash   2 the last token
-- ARGV  1 owner field   2 holds the owner will then have   3 lease in ms   4 '1'
--       for small tokens
-- Gives the token as text when taken; nil when a re-entry is; >= -1 when busy:
--       the holder's remaining time in ms, -1 if it has none; -3 when the outer
--       holds of a re-entry are gone; -6 when the key holds a read-write lock,
--       or a hash that is no lock.
--
-- Twice is harmless, and so is late: while an owner has the lock nobody spends
-- a token, so the last one is its own, and that is what a second sending gets.
-- The token comes first: where that is refused nothing is taken; where the
-- expiry is refused what was taken is undone, and a token was spent for
-- nothing. Who has it always writes, so that a WAIT behind it counts it.
local key, tokens = KEYS[1], KEYS[2]
local owner, target, lease = ARGV[1], ARGV[2], ARGV[3]
--@include is_lock
--@include token

local left = redis.call('pttl', key)
local has

if left == -2 then
    if target ~= '1' then
        return -3
    end
else
    local found = redis.call('hmget', key, owner, 'mode')
    if found[2] then
        return -6
    end
    has = tonumber(found[1] or nil)
    if not has and target ~= '1' then
        return -3
    elseif not has then
        return is_lock(key) and left or -6
    end
end

local token = false
if target == '1' then
    token = has and redis.call('get', tokens) or
        next_token(tokens, ARGV[4] == '1')
end
if not has or has < tonumber(target) then
    redis.call('hset', key, owner, target)
end
if left < tonumber(lease) then
    local done = redis.pcall('pexpire', key, lease)
    if type(done) == 'table' then
        if target == '1' then
            redis.call('del', key)
        else
            redis.call('hset', key, owner, tonumber(target) - 1)
        end
        return {err = done.err .. ' (pexpire)'}
    end
elseif has and has >= tonumber(target) then
    redis.pcall('pexpire', key, left) -- nothing new, but something written
end
return token
