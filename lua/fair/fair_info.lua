-- fair_info: holder and waiters of a fair lock.
--
-- KEYS  1 lock hash   2 queue   3 scores
-- ARGV  1 first place wanted   2 number of places   3 value
-- Returns an array: TTL in ms (-1 none, -2 not locked, SCRIPT_WRONG_TYPE a hash
--       that is no lock); number of fields; length of the queue; field and
--       value of up to 32 fields; for each place wanted the waiter and ms until
--       its score passes, '' if it has no valid score; last, if the holder
--       published a value, its number.
--@include lock_fields
--@include value_number
local MAX_AGE = 315360000000 -- ten years; no valid score is that far ahead
local MAX_FIELDS = 32
local lock, queue, scores = KEYS[1], KEYS[2], KEYS[3]
local first, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local field_count = redis.call('hlen', lock)
local is_small = field_count <= MAX_FIELDS
local fields = is_small and redis.call('hgetall', lock) or {}
local ttl = is_small and redis.call('pttl', lock) or SCRIPT_WRONG_TYPE
local answer = {ttl, #fields / 2, redis.call('llen', queue)}

if not all_holds(fields) then
    answer[1] = SCRIPT_WRONG_TYPE
end
for i = 1, #fields do
    answer[#answer + 1] = fields[i]:sub(1, 512) -- another client's may be long
end
if count > 0 then
--@include now
    local waiters = redis.call('lrange', queue, first, first + count - 1)
    for _, waiter in ipairs(waiters) do
        local score = tonumber(redis.call('zscore', scores, waiter) or nil)
        local is_valid = score and score >= 0 and score <= now + MAX_AGE
        answer[#answer + 1] = waiter:sub(1, 512)
        answer[#answer + 1] = is_valid and ('%.0f'):format(score - now) or ''
    end
end
answer[#answer + 1] = value_number(ARGV[3], fields)
return answer
