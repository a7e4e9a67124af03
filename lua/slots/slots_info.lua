-- slots_info: how many permits there are, and who has them.
--
-- KEYS  1 number of free permits   2 permits that are out, by their end
--       3 number of a slot -> id and owner of the permit
-- ARGV  1 first permit wanted   2 how many
-- Gives an array: 1 if somebody has said how many there are, else 0; how many
--       are free; how many are out; then for each one asked for, the one that
--       ends first before the others: its owner, or 32 hex digits of its id if
--       that is another client's; ms until it ends, -1 never; its slot's
--       number, -1 if it has none.
--
-- A permit whose end has come counts as free, as it does for an acquire: it is
-- not out, and not among those asked for.
local count, out, seats = KEYS[1], KEYS[2], KEYS[3]
local first, most = tonumber(ARGV[1]), tonumber(ARGV[2])
--@include parse_int
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
--@include slot_permits

local free = redis.call('get', count)
if free and not parse_int(free) then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
-- Up to a second ago ended: only the permits of this library are free.
local ended = redis.call('zcount', out, 0, now - 1000)
local late = redis.call('zrangebyscore', out, '(' .. now - 1000, now,
                        'withscores', 'limit', 0, 10 * CHUNK)
for i = 1, #late, 2 do
    if tonumber(late[i + 1]) >= 0 and end_of(late[i], late[i + 1]) <= now then
        ended = ended + 1
    end
end
local answer = {free and 1 or 0, free and parse_int(free) + ended or 0,
                redis.call('zcard', out) - ended}
if most == 0 then
    return answer
end
local known = {}
local all = redis.call('hgetall', seats)
for i = 1, #all, 2 do
    known[all[i + 1]:sub(1, 16)] = {all[i + 1]:sub(17, 528), all[i]}
end
all = redis.call('zrangebyscore', out, '(' .. now - 1000, '+inf', 'withscores',
                 'limit', 0, first + most + #late / 2)
for i = 1, #all, 2 do
    local id, score = all[i], tonumber(all[i + 1])
    local left = end_of(id, score) - now
    if left > 0 then
        first = first - 1
    end
    if left > 0 and first < 0 and first >= -most then
        local who = known[id] or {id:sub(1, 256):gsub('.', function(byte)
            return ('%02x'):format(byte:byte())
        end), '-1'}
        answer[#answer + 1] = who[1]
        answer[#answer + 1] = score < NEVER and left or -1
        answer[#answer + 1] = tonumber(who[2]) or -1
    end
end
return answer
