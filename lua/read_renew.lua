-- read_renew: push back the end of many read holds at once.
--
-- KEYS  for each: lock hash, its owner's read key
-- ARGV  for each: owner, lease in ms
-- Gives a string with one letter each: '1' renewed, '0' over, 'e' the key is
--       something else.
--
-- Only lengthens. A read key that is gone is not made again: its lease is over,
-- and a writer may have been let in.
local verdicts = {}

for i = 1, #KEYS, 2 do
    local key, mine, lease = KEYS[i], KEYS[i + 1], ARGV[i + 1]
    local reads = redis.pcall('hexists', key, ARGV[i])
    local left = redis.call('pttl', mine)
    local verdict = 'e'
    if reads == 0 or (reads == 1 and left == -2) then
        verdict = '0'
    elseif reads == 1 then
        local done = 1
        if left < tonumber(lease) then
            done = redis.pcall('pexpire', mine, lease)
        end
        if type(done) ~= 'table' and
            redis.call('pttl', key) < tonumber(lease) then
            done = redis.pcall('pexpire', key, lease)
        end
        verdict = type(done) == 'table' and 'e' or '1'
    end
    verdicts[#verdicts + 1] = verdict
end
return table.concat(verdicts)
