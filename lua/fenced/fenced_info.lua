-- fenced_info: who holds the lock, how often, for how long; and the last token.
--
-- KEYS  1 lock hash   2 the last token
-- ARGV  1 value
-- Gives an array: remaining time in ms (-1 none, -2 not locked, -6 a hash that
--       is no lock), number of fields, the last token as text, then field and
--       value of each. The token is '' if there is none, or it is no number.
--       Last, if the holder published a value: the number of it, as a number.
local key = KEYS[1]
local token = redis.pcall('get', KEYS[2])
if type(token) ~= 'string' or not token:find('^%-?%d+$') then
    token = ''
end
--@include is_lock
--@include value_number

local count = redis.call('hlen', key)
local all = count <= 32 and redis.call('hgetall', key) or {}
if count > 32 or not all_holds(all) then
    return {-6, 0, token}
end
local answer = {redis.call('pttl', key), count, token}
for i = 1, #all do
    answer[#answer + 1] = all[i]:sub(1, 512) -- a stranger's may be long
end
answer[#answer + 1] = value_number(ARGV[1], all)
return answer
