-- permit_renew: push back the end of many permits at once.
--
-- KEYS  for each permit the list it is in; none: they are behind the other
--       arguments
-- ARGV  for each permit: its id, lease in ms; then, if there are no KEYS, the
--       lists
-- Gives a string with one letter a permit: '1' renewed, '0' not out any more,
--       'e' the key is something else. Without KEYS also 'm': ask for this one
--       alone, as a key.
--
-- A lease of -1 changes nothing: it only asks whether the permit is out. A
-- renewal only ever lengthens, so one that comes late does no harm. What has
-- ended is not renewed, for somebody else may count on it. One bad key spoils
-- nothing for the others. Why there may be no KEYS: see basic_renew. A full
-- server lets it pass once a script has written: to take out what is not there
-- is enough for that.
local verdicts = {}
local count = #KEYS > 0 and #KEYS or #ARGV / 3
local bad = #KEYS > 0 and 'e' or 'm'
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

for i = 1, count do
    local key = KEYS[i] or ARGV[2 * count + i]
    local id, lease = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
    local score = redis.pcall('zscore', key, id)
    local verdict = '0'
    if type(score) == 'table' then
        verdict = bad
    elseif score and tonumber(score) > now then
        verdict = '1'
        if tonumber(score) < now + lease then
            local done = redis.pcall('zadd', key, 'xx', now + lease, id)
            if type(done) == 'table' then
                redis.pcall('zrem', key, '')
                done = redis.pcall('zadd', key, 'xx', now + lease, id)
            end
            if type(done) == 'table' then
                verdict = bad
            end
        end
    end
    verdicts[i] = verdict
end
return table.concat(verdicts)
