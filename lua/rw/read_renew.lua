-- read_renew: renews many read holds.
--
-- KEYS  for each hold: lock hash, its owner's read key; none: they follow the
--       other arguments
-- ARGV  for each hold: owner, lease in ms; then, without KEYS, the keys
-- Returns a string of one letter for each hold: '1' renewed, '0' expired, 'w'
--       the key has another type, 'e' the server refused. Without KEYS also
--       'm': renew this one alone, with KEYS (see mutex_renew).
--
-- A lease of -1 changes nothing: only the letters are wanted. A renewal only
-- lengthens. A read key that expired is not created again: a writer may have
-- acquired the lock since.
local verdicts = {}
local count = #KEYS > 0 and #KEYS or #ARGV / 2
local refused = #KEYS > 0 and 'e' or 'm'

for i = 1, count, 2 do
    local key = KEYS[i] or ARGV[count + i]
    local read_key = KEYS[i + 1] or ARGV[count + i + 1]
    local lease = ARGV[i + 1]
    local is_field = redis.pcall('hexists', key, ARGV[i])
    local read_ttl = redis.pcall('pttl', read_key)
    local verdict = refused
    if type(read_ttl) == 'table' then
        is_field = nil
    end
    if type(is_field) == 'table' and is_field.err:find('^WRONGTYPE') then
        verdict = 'w'
    elseif is_field == 0 or (is_field == 1 and read_ttl == -2) then
        verdict = '0'
    elseif is_field == 1 then
        local done = 1
        if read_ttl < tonumber(lease) then
            done = redis.pcall('pexpire', read_key, lease)
        end
        if type(done) ~= 'table' and
            redis.call('pttl', key) < tonumber(lease) then
            done = redis.pcall('pexpire', key, lease)
        end
        verdict = type(done) == 'table' and refused or '1'
    end
    verdicts[#verdicts + 1] = verdict
end
return table.concat(verdicts)
