-- basic_renew: push back the end of many leases at once.
--
-- KEYS  lock hashes
-- ARGV  for each key: owner field, lease in ms
-- Gives a string with one letter a key: '1' renewed, '0' not this owner's any
--       more, 'e' the key is something else.
--
-- A renewal only ever lengthens, so one that comes late does no harm. One bad
-- key spoils nothing for the others.
local verdicts = {}

for i, key in ipairs(KEYS) do
    local mine = redis.pcall('hexists', key, ARGV[2 * i - 1])
    local lease = ARGV[2 * i]
    local verdict = '0'
    if mine == 1 then
        verdict = '1'
        if redis.call('pttl', key) < tonumber(lease) then
            local done = redis.pcall('pexpire', key, lease)
            if type(done) == 'table' then
                verdict = 'e'
            end
        end
    elseif mine ~= 0 then
        verdict = 'e'
    end
    verdicts[i] = verdict
end
return table.concat(verdicts)
