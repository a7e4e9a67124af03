-- slots_info: number of permits, and owners of the acquired ones.
--
-- KEYS  1 number of free permits   2 acquired permits: ids, scored by their end
--       3 slot table: slot number -> permit id and owner
-- ARGV  1 first permit wanted   2 number of permits wanted
-- Returns an array: 1 if the total was set, else 0; number of free permits;
--       number of acquired permits; then for each permit wanted, in the order
--       of their end: its owner, or 32 hex digits of its id if it is another
--       client's; ms until it expires, -1 never; its slot number, -1 if it
--       has none.
--
-- An expired permit counts as free, as an acquire reclaims it.
local count, permits, slot_table = KEYS[1], KEYS[2], KEYS[3]
local first, wanted = tonumber(ARGV[1]), tonumber(ARGV[2])
--@include parse_int
--@include now
--@include slot_permits

local free = redis.call('get', count)
if free and not parse_int(free) then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
-- A permit that ended within the last second expired only if it is one of this
-- library (see end_of).
local expired = redis.call('zcount', permits, 0, now - 1000)
local recent = redis.call('zrangebyscore', permits, '(' .. now - 1000, now,
                          'withscores', 'limit', 0, 10 * CHUNK)
for i = 1, #recent, 2 do
    if tonumber(recent[i + 1]) >= 0 and
        end_of(recent[i], recent[i + 1]) <= now then
        expired = expired + 1
    end
end
local answer = {free and 1 or 0, free and parse_int(free) + expired or 0,
                redis.call('zcard', permits) - expired}
if wanted == 0 then
    return answer
end
local entries = {}
local all = redis.call('hgetall', slot_table)
for i = 1, #all, 2 do
    entries[all[i + 1]:sub(1, 16)] = {all[i + 1]:sub(17, 528), all[i]}
end
all = redis.call('zrangebyscore', permits, '(' .. now - 1000, '+inf',
                 'withscores', 'limit', 0, first + wanted + #recent / 2)
for i = 1, #all, 2 do
    local id, score = all[i], tonumber(all[i + 1])
    local ttl = end_of(id, score) - now
    if ttl > 0 then
        first = first - 1
    end
    if ttl > 0 and first < 0 and first >= -wanted then
        local entry = entries[id] or {id:sub(1, 256):gsub('.', function(byte)
            return ('%02x'):format(byte:byte())
        end), '-1'}
        answer[#answer + 1] = entry[1]
        answer[#answer + 1] = score < NEVER and ttl or -1
        answer[#answer + 1] = tonumber(entry[2]) or -1
    end
end
return answer
