-- permit_renew: renews many permits of slots.
--
-- KEYS  for each permit the sorted set it is in; none: they follow the other
--       arguments
-- ARGV  for each permit: its id, lease in ms; then, without KEYS, the sorted
--       sets
-- Returns a string of one letter for each permit: '1' renewed, '0' not acquired
--       any more, 'w' the key has another type, 'e' the server refused. Without
--       KEYS also 'm': renew this one alone, as a key.
--
-- A lease of -1 changes nothing: only the letters are wanted. A renewal only
-- lengthens, so a delayed one does no harm. An expired permit is not renewed:
-- another client may have acquired it. An error for one key does not affect the
-- others. mutex_renew has the reason for the form without KEYS.
local verdicts = {}
local count = #KEYS > 0 and #KEYS or #ARGV / 3
local refused = #KEYS > 0 and 'e' or 'm'
--@include now
--@include renew_permit

for i = 1, count do
    verdicts[i] = renew_permit(KEYS[i] or ARGV[2 * count + i], ARGV[2 * i - 1],
                               tonumber(ARGV[2 * i]), refused)
end
return table.concat(verdicts)
