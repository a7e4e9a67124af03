-- mutex_renew: push back the end of many leases at once.
--
-- KEYS  lock hashes; none: they are behind the other arguments
-- ARGV  for each key: owner field, lease in ms; then, if there are no KEYS, the
--       lock hashes
-- Gives a string with one letter a key: '1' renewed, '0' this owner does not
--       hold it, 'w' the key has another type, 'e' the server refused. Without
--       KEYS also 'm': ask for this one alone, as a key.
--
-- A lease of -1 changes nothing: it only asks whether the hold is there.
-- A renewal only ever lengthens, so one that comes late does no harm. One bad
-- key spoils nothing for the others. In a cluster, keys of one command must be
-- in one slot, but a script may use whatever its node has: hence without KEYS.
-- What the node does not have (any more) is an error for that key.
local verdicts = {}
local count = #KEYS > 0 and #KEYS or #ARGV / 3
local bad = #KEYS > 0 and 'e' or 'm'

for i = 1, count do
    local key = KEYS[i] or ARGV[2 * count + i]
    local mine = redis.pcall('hexists', key, ARGV[2 * i - 1])
    local lease = ARGV[2 * i]
    local verdict = '0'
    if mine == 1 then
        verdict = '1'
        if redis.call('pttl', key) < tonumber(lease) then
            local done = redis.pcall('pexpire', key, lease)
            if type(done) == 'table' then
                verdict = bad
            end
        end
    elseif mine ~= 0 then
        verdict = mine.err:find('^WRONGTYPE') and 'w' or bad
    end
    verdicts[i] = verdict
end
return table.concat(verdicts)
