-- object_info: what is under a name, if the caller does not know its kind.
--
-- KEYS  1 name
-- ARGV  1 the last token   2 permits that are out, by their end   3 slots
--       4 book of permits   5 notes of a latch; '' if it can have none
-- Gives an array: a word (none, lock, rw, slots, semaphore, latch, counter or
--       other), the last token as text ('' if there is none), the number under
--       the name, how many entries of the book are not over, ms until the
--       first of them or the latch ends (-1 never). What entries that are over
--       had counts as free. A latch that was opened is one while its notes
--       last.
--
-- A counter is a number that nobody has used since it was set: of slots, of a
-- semaphore or of a latch. The other keys are not in KEYS, so that a user who
-- may not read them can ask, too: for that user they are not there.
local name = KEYS[1]
--@include parse_int

local function count_of(command, key)
    local n = key ~= '' and redis.pcall(command, key)
    return type(n) == 'number' and n or 0
end

local token = redis.pcall('get', ARGV[1])
if type(token) ~= 'string' or not token:find('^%d+$') then
    token = ''
end
local number = redis.pcall('get', name)
if type(number) == 'table' then
    local fields = redis.pcall('hlen', name)
    local mode = redis.pcall('hget', name, 'mode')
    return {type(fields) ~= 'number' and 'other' or
            type(mode) == 'string' and 'rw' or 'lock', token, 0, 0, -1}
end
local value = number and parse_int(number) or 0
if count_of('zcard', ARGV[2]) > 0 or number and count_of('hlen', ARGV[3]) > 0
then
    return {'slots', token, value, 0, -1}
elseif not number then
    return {count_of('hlen', ARGV[5]) > 0 and 'latch' or 'none', token, 0, 0, -1}
elseif not parse_int(number) then
    return {'other', token, 0, 0, -1}
end
local entries = count_of('zcard', ARGV[4])
if entries > 0 then
    local time = redis.pcall('time')
    local now = time[2] and time[1] * 1000 + math.floor(time[2] / 1000) or 0
    -- What is over comes back when somebody asks for permits: it is free.
    local over = redis.pcall('zrangebyscore', ARGV[4], '-inf', now, 'limit', 0,
                             1000)
    for _, entry in ipairs(over) do
        value = value + (tonumber(entry:match('^(%d+):')) or 0)
    end
    local first = redis.pcall('zrange', ARGV[4], #over, #over, 'withscores')
    local left = now > 0 and first[2] and math.max(first[2] - now, 0) or -1
    return {'semaphore', token, value, entries - #over, left}
elseif count_of('hlen', ARGV[5]) > 0 then
    return {'latch', token, value, 0, redis.call('pttl', name)}
end
return {'counter', token, value, 0, redis.call('pttl', name)}
