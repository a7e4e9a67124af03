-- semaphore_renew: push back the end of what many acquires took.
--
-- KEYS  for each: number of free permits, the ledger; none: they are behind the
--       other arguments
-- ARGV  for each: its entry in the ledger, lease in ms; then, if there are no
--       KEYS, the keys
-- Gives a string with one letter each, as permit_renew.
--
-- A semaphore without a number was deleted, and its ledger is void: the ledger is
-- deleted, too. Otherwise its permits would be added to those of a semaphore
-- that is set under this name later. A key of another type counts as deleted. A
-- lease of -1 asks only, and does that as well.
local verdicts = {}
local count = #KEYS > 0 and #KEYS / 2 or #ARGV / 4
local bad = #KEYS > 0 and 'e' or 'm'
--@include parse_int
--@include renew_permit

for i = 1, count do
    local at = 2 * i - 1
    local number = KEYS[at] or ARGV[2 * count + at]
    local ledger = KEYS[at + 1] or ARGV[2 * count + at + 1]
    local free = redis.pcall('get', number)
    if parse_int(free) then
        verdicts[i] = renew_permit(ledger, ARGV[at], tonumber(ARGV[at + 1]), bad)
    elseif type(free) == 'table' and not is_other_type(free) then
        verdicts[i] = bad
    else
        redis.pcall('del', ledger)
        verdicts[i] = free and 'w' or '0'
    end
end
return table.concat(verdicts)
