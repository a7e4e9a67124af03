-- read_renew: push back the end of many read holds at once.
--
-- KEYS  for each: lock hash, its owner's read key; none: they are behind the
--       other arguments
-- ARGV  for each: owner, lease in ms; then, if there are no KEYS, the keys
-- Gives a string with one letter each: '1' renewed, '0' over, 'w' the key has
--       another type, 'e' the server refused. Without KEYS also 'm': ask for
--       this one alone, with KEYS (see mutex_renew).
--
-- A lease of -1 changes nothing: it only asks whether the hold is there.
-- Only lengthens. A read key that is gone is not made again: its lease is over,
-- and a writer may have been let in.
local verdicts = {}
local count = #KEYS > 0 and #KEYS or #ARGV / 2
local bad = #KEYS > 0 and 'e' or 'm'

for i = 1, count, 2 do
    local key = KEYS[i] or ARGV[count + i]
    local mine = KEYS[i + 1] or ARGV[count + i + 1]
    local lease = ARGV[i + 1]
    local reads = redis.pcall('hexists', key, ARGV[i])
    local left = redis.pcall('pttl', mine)
    local verdict = bad
    if type(left) == 'table' then
        reads = nil
    end
    if type(reads) == 'table' and reads.err:find('^WRONGTYPE') then
        verdict = 'w'
    elseif reads == 0 or (reads == 1 and left == -2) then
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
        verdict = type(done) == 'table' and bad or '1'
    end
    verdicts[#verdicts + 1] = verdict
end
return table.concat(verdicts)
