-- mutex_info: holders, hold counts and TTL of a lock.
--
-- KEYS  1 lock hash
-- ARGV  1 value
-- Returns an array: TTL in ms (-1 none, -2 not locked, SCRIPT_WRONG_TYPE a hash
--       that is no lock); number of fields; 0 (length of the queue); field and
--       value of up to 32 fields, the mode first; last, if the holder published
--       a value, its number.
--
-- Only a read-write lock has many fields; some of them are enough.
local MAX_FIELDS = 32
local key = KEYS[1]
--@include lock_fields
--@include value_number

local count = redis.call('hlen', key)
local mode = count > 0 and redis.call('hget', key, 'mode')
local fields
if count > MAX_FIELDS then
    fields = redis.call('hscan', key, 0, 'count', MAX_FIELDS)[2]
else
    fields = redis.call('hgetall', key)
end
local valid = count == 0 or all_holds(fields)
if count > MAX_FIELDS then
    valid = (mode == 'read' or mode == 'write') and (valid or #fields <= 2)
end
if not valid then
    return {SCRIPT_WRONG_TYPE, 0, 0}
end
local answer = {redis.call('pttl', key), count, 0}

if mode then
    answer[4], answer[5] = 'mode', mode
end
for i = 1, #fields, 2 do
    if fields[i] ~= 'mode' and #answer < 3 + 2 * MAX_FIELDS then
        -- Another client's field may be long.
        answer[#answer + 1] = fields[i]:sub(1, 512)
        answer[#answer + 1] = fields[i + 1]:sub(1, 512)
    end
end
answer[#answer + 1] = value_number(ARGV[1], fields)
return answer
