-- value_get: what the holder of a lock published with it.
--
-- KEYS  1 lock hash  2 value
-- Gives owner and text; nothing ({}) if nobody published, or if that owner does
--       not hold the lock (any more).
--
-- A stranger's text may be long: no more than 4096 bytes of it are told.
local who, text =
    (redis.call('get', KEYS[2]) or ''):match('^(%S+) %d+ (.*)$')

if not who or redis.call('hexists', KEYS[1], who) == 0 then
    return {}
end
return {who, text:sub(1, 4096)}
