-- fenced_acquire: take the lock and spend a token, or say how long its holder
-- still has.
--
-- KEYS  1 lock hash   2 the last token
-- ARGV  1 owner field   2 holds the owner will then have   3 lease in ms   4 '1'
--       for small tokens   and to be called when it is free, 5 to 7 as 4 to 6
--       of mutex_acquire
-- Gives the token as text when taken; nil when a re-entry is; >= -1 when busy:
--       the holder's remaining time in ms, -1 if it has none, with 5 to 7 an
--       array as mutex_acquire; -3 when the outer holds of a re-entry are gone;
--       -6 when the key holds a read-write lock, or a hash that is no lock.
--
-- Twice is harmless, and so is late: while an owner has the lock nobody spends
-- a token, so the last one is its own, and that is what a second sending gets.
-- The token comes first: where that is refused nothing is taken; where the
-- expiry is refused what was taken is undone, and a token was spent for
-- nothing. Who has it always writes, so that a WAIT behind it counts it.
local call = redis.call
local key, tokens = KEYS[1], KEYS[2]
local owner, target, lease, how = ARGV[1], ARGV[2], ARGV[3], ARGV[7]
local left = call('pttl', key)
local in_queue = how and (how == 'again' or how == 'foreign')
local has = 0

-- Nobody has it, and the last token is older than now: nearly every acquire
-- ends here, so the token is set before the last one is known. Both have as
-- many digits, so they compare as text. The key's life begins anew when one of
-- the first seven digits has changed, which is so every 17 minutes; while they
-- are the same the last one is a token, and needs no closer look. One that is
-- not older, or no number, is put back as it was.
if left == -2 and target == '1' and ARGV[4] ~= '1' and not in_queue then
    local time = call('time')
    local micro = time[2]
    local token = time[1] .. (#micro == 6 and micro or ('%06d'):format(micro))
    local last = call('set', tokens, token, 'keepttl', 'get')
    local older = not last or #last == #token and last < token
    if older and (not last or last < token:sub(1, 7)) then
        older = not last or last:find('^%d+$')
        if older then
            call('set', tokens, token, 'px', '604800000') -- a week
        end
    end
    if older then
        call('hset', key, owner, '1')
        local done = redis.pcall('pexpire', key, lease)
        if done == 1 then
            return token
        end
        call('del', key)
        return {err = done.err .. ' (pexpire)'}
    end
    call('set', tokens, last, 'keepttl')
end

if left == -2 and target ~= '1' then
    return -3
elseif left ~= -2 then
    local found = call('hmget', key, owner, 'mode')
    has = tonumber(found[1] or nil)
    if found[2] then
        return -6
    elseif not has and target ~= '1' then
        return -3
    elseif not has then
--@include is_lock
        if how ~= 'called' and not is_lock(key) then
            return -6
        elseif not ARGV[6] then
            return left
        end
--@include register
        return {left, register(ARGV[5], ARGV[6], how)}
    end
end

--@include token
--@include take_hold
local token = false
if target == '1' then
    token = has > 0 and call('get', tokens) or
        next_token(tokens, ARGV[4] == '1')
end
local failed = take_hold(key, owner, has, target, left, lease)
if not failed and left == -2 and in_queue then
--@include leave_queue
    leave_queue(ARGV[5], ARGV[6], how)
end
return failed or token
