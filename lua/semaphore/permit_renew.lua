-- permit_renew: push back the end of many permits at once.
--
-- KEYS  for each permit the list it is in; none: they are behind the other
--       arguments
-- ARGV  for each permit: its id, lease in ms; then, if there are no KEYS, the
--       lists
-- Gives a string with one letter a permit: '1' renewed, '0' not out any more,
--       'w' the key has another type, 'e' the server refused. Without KEYS also
--       'm': ask for this one alone, as a key.
--
-- A lease of -1 changes nothing: it only asks whether the permit is out. A
-- renewal only ever lengthens, so one that comes late does no harm. What has
-- ended is not renewed, for somebody else may count on it. One bad key spoils
-- nothing for the others. Why there may be no KEYS: see mutex_renew.
local verdicts = {}
local count = #KEYS > 0 and #KEYS or #ARGV / 3
local bad = #KEYS > 0 and 'e' or 'm'
--@include renew_permit

for i = 1, count do
    verdicts[i] = renew_permit(KEYS[i] or ARGV[2 * count + i], ARGV[2 * i - 1],
                               tonumber(ARGV[2 * i]), bad)
end
return table.concat(verdicts)
