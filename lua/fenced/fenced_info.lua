-- fenced_info: holders, hold counts and TTL of a lock, and its last token.
--
-- KEYS  1 lock hash   2 the last token
-- ARGV  1 value
-- Returns an array: TTL in ms (-1 none, -2 not locked, SCRIPT_WRONG_TYPE a hash
--       that is no lock); number of fields; the last token as a string, '' if
--       there is none or it is no number; field and value of each field; last,
--       if the holder published a value, its number.
local key = KEYS[1]
local token = redis.pcall('get', KEYS[2])
if type(token) ~= 'string' or not token:find('^%-?%d+$') then
    token = ''
end
--@include lock_fields
--@include value_number

local count = redis.call('hlen', key)
local fields = count <= 32 and redis.call('hgetall', key) or {}
if count > 32 or not all_holds(fields) then
    return {SCRIPT_WRONG_TYPE, 0, token}
end
local answer = {redis.call('pttl', key), count, token}
for i = 1, #fields do
    answer[#answer + 1] = fields[i]:sub(1, 512) -- another client's may be long
end
answer[#answer + 1] = value_number(ARGV[1], fields)
return answer
