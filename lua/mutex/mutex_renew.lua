-- mutex_renew: renews many leases.
--
-- KEYS  lock hashes; none: they follow the other arguments
-- ARGV  for each key: owner field, lease in ms; then, without KEYS, the lock
--       hashes
-- Returns a string of one letter for each key: '1' renewed, '0' not held by
--       this owner, 'w' the key has another type, 'e' the server refused.
--       Without KEYS also 'm': renew this one alone, as a key.
--
-- A lease of -1 changes nothing: only the letters are wanted. A renewal only
-- lengthens, so a delayed one does no harm. An error for one key does not
-- affect the others. In a cluster all KEYS of a command must be in one slot,
-- but a script can access any key of its node; hence the form without KEYS,
-- where a key of another node is an error for that key.
local verdicts = {}
local count = #KEYS > 0 and #KEYS or #ARGV / 3
local refused = #KEYS > 0 and 'e' or 'm'

for i = 1, count do
    local key = KEYS[i] or ARGV[2 * count + i]
    local held = redis.pcall('hexists', key, ARGV[2 * i - 1])
    local lease = ARGV[2 * i]
    local verdict = '0'
    if held == 1 then
        verdict = '1'
        if redis.call('pttl', key) < tonumber(lease) then
            local done = redis.pcall('pexpire', key, lease)
            if type(done) == 'table' then
                verdict = refused
            end
        end
    elseif held ~= 0 then
        verdict = held.err:find('^WRONGTYPE') and 'w' or refused
    end
    verdicts[i] = verdict
end
return table.concat(verdicts)
