-- semaphore_renew: renews the permits of many acquires.
--
-- KEYS  for each acquire: number of free permits, ledger; none: they follow the
--       other arguments
-- ARGV  for each acquire: its ledger entry, lease in ms; then, without KEYS,
--       the keys
-- Returns a string of one letter for each acquire, as permit_renew.
--
-- If the number of free permits does not exist, the semaphore was deleted, and
-- its ledger is void: it is deleted, or its permits would be added to those of
-- a semaphore set under this name later. A key of another type counts as
-- deleted. A lease of -1 renews nothing, but deletes a void ledger, too.
local verdicts = {}
local count = #KEYS > 0 and #KEYS / 2 or #ARGV / 4
local refused = #KEYS > 0 and 'e' or 'm'
--@include parse_int
--@include now
--@include renew_permit

for i = 1, count do
    local at = 2 * i - 1
    local count_key = KEYS[at] or ARGV[2 * count + at]
    local ledger = KEYS[at + 1] or ARGV[2 * count + at + 1]
    local free = redis.pcall('get', count_key)
    if parse_int(free) then
        verdicts[i] = renew_permit(ledger, ARGV[at], tonumber(ARGV[at + 1]),
                                   refused)
    elseif type(free) == 'table' and not is_wrong_type(free) then
        verdicts[i] = refused
    else
        redis.pcall('del', ledger)
        verdicts[i] = free and 'w' or '0'
    end
end
return table.concat(verdicts)
