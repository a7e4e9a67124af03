-- fenced_acquire: acquires the lock and issues a token, or returns its
-- remaining TTL.
--
-- KEYS  1 lock hash   2 the last token
-- ARGV  1 owner field   2 target hold count   3 lease in ms   4 '1' for small
--       tokens   optional, to wait in the queue: 5 to 7 as 4 to 6 of
--       mutex_acquire
-- Returns the token as a string if acquired; nil for a re-entry; else as
--       mutex_acquire.
--
-- Idempotent, also when delayed: while an owner holds the lock no other token
-- is issued, so the last token is its own, and a repeated request returns it.
-- The token is issued first: if that is refused, nothing is acquired. If the
-- TTL is refused, the acquire is rolled back, and a token is skipped. A success
-- always writes, so that a WAIT after the script covers this hold.
local call = redis.call
local key, token_key = KEYS[1], KEYS[2]
local owner, target, lease, attempt = ARGV[1], ARGV[2], ARGV[3], ARGV[7]
local ttl = call('pttl', key)
local channel, client_channel = ARGV[5], ARGV[6]
local in_queue = attempt and (attempt == 'again' or attempt == 'foreign')
local has = 0

-- Fast path: the lock is free, and the last token is below the server's time.
-- The new token is set before the last one is known. Both have as many digits,
-- so they compare as strings. The TTL of the token's key is renewed whenever
-- one of the first seven digits changes, every 17 minutes; while these are the
-- same, the last value was a token, and needs no check. If the last value is
-- not below, or no number, it is restored.
if ttl == -2 and target == '1' and ARGV[4] ~= '1' and not in_queue then
    local time = call('time')
    local micro = time[2]
    local token = time[1] .. (#micro == 6 and micro or ('%06d'):format(micro))
    local last = call('set', token_key, token, 'keepttl', 'get')
    local is_newer = not last or #last == #token and last < token
    if is_newer and (not last or last < token:sub(1, 7)) then
        is_newer = not last or last:find('^%d+$')
        if is_newer then
            call('set', token_key, token, 'px', '604800000') -- a week
        end
    end
    if is_newer then
        call('hset', key, owner, '1')
        local done = redis.pcall('pexpire', key, lease)
        if done == 1 then
            return token
        end
        call('del', key)
        return {err = done.err .. ' (pexpire)'}
    end
    call('set', token_key, last, 'keepttl')
end

if ttl == -2 and target ~= '1' then
    return SCRIPT_OUTER_HOLD_LOST
elseif ttl ~= -2 then
    local found = call('hmget', key, owner, 'mode')
    has = tonumber(found[1] or nil)
    if found[2] then
        return SCRIPT_WRONG_TYPE
    elseif not has and target ~= '1' then
        return SCRIPT_OUTER_HOLD_LOST
    elseif not has then
--@include is_lock
        if attempt ~= 'called' and not is_lock(key) then
            return SCRIPT_WRONG_TYPE
        elseif not client_channel then
            return ttl
        end
--@include register
        return {ttl, register(channel, client_channel, attempt)}
    end
end

--@include token
--@include take_hold
local token = false
if target == '1' then
    token = has > 0 and call('get', token_key) or
        next_token(token_key, ARGV[4] == '1')
end
local failed = take_hold(key, owner, has, target, ttl, lease)
if not failed and ttl == -2 and in_queue then
--@include leave_queue
    leave_queue(channel, client_channel, attempt)
end
return failed or token
