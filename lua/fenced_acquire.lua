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
local left = redis.call('pttl', key)
local has = 0

-- Nobody has it, and the last token is older than now: nearly every acquire
-- ends here. Both tokens have as many digits, so they compare as text.
if left == -2 and target == '1' and ARGV[4] ~= '1' then
    local last = redis.call('get', tokens)
    local time = redis.call('time')
    local token = time[1] .. ('%06d'):format(time[2])
    if not last or #last == #token and last < token and not last:find('%D') then
        redis.call('set', tokens, token, 'px', '604800000') -- as in next_token
        redis.call('hset', key, owner, '1')
        local done = redis.pcall('pexpire', key, lease)
        if type(done) ~= 'table' then
            return token
        end
        redis.call('del', key)
        return {err = done.err .. ' (pexpire)'}
    end
end

if left == -2 and target ~= '1' then
    return -3
elseif left ~= -2 then
    local found = redis.call('hmget', key, owner, 'mode')
    has = tonumber(found[1] or nil)
    if found[2] then
        return -6
    elseif not has and target ~= '1' then
        return -3
    elseif not has then
--@include is_lock
        return is_lock(key) and left or -6
    end
end

--@include token
--@include take_hold
local token = false
if target == '1' then
    token = has > 0 and redis.call('get', tokens) or
        next_token(tokens, ARGV[4] == '1')
end
return take_hold(key, owner, has, target, left, lease) or token
