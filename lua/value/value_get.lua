-- value_get: reads the value that the holder of a lock published.
--
-- KEYS  1 lock hash  2 value
-- Returns owner and text; {} if there is no value, or if its owner does not
--       hold the lock.
--
-- Another client's text may be long: at most 4096 bytes are returned.
local publisher, text =
    (redis.call('get', KEYS[2]) or ''):match('^(%S+) %d+ (.*)$')

if not publisher or redis.call('hexists', KEYS[1], publisher) == 0 then
    return {}
end
return {publisher, text:sub(1, 4096)}
