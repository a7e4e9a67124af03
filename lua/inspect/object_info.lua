-- object_info: the kind of the object under a name, and its state.
--
-- KEYS  1 name
-- ARGV  1 last token of a fenced lock   2 acquired permits of slots   3 slot
--       table   4 ledger of a semaphore   5 notes of a latch; '' if the object
--       can have none
-- Returns an array: the kind (none, lock, rw, slots, semaphore, latch, counter
--       or other); the last token as a string, '' if there is none; the number
--       under the name, plus the permits of expired ledger entries; number of
--       ledger entries not expired; ms until the first of them or the latch
--       expires, -1 never. An open latch is one while its notes exist.
--
-- A counter is a number that no client has used since it was set: of slots, of
-- a semaphore or of a latch. The other keys are not in KEYS, so that a user who
-- may not read them can call this script: they count as missing then.
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
    local kind = count_of('hlen', ARGV[5]) > 0 and 'latch' or 'none'
    return {kind, token, 0, 0, -1}
elseif not parse_int(number) then
    return {'other', token, 0, 0, -1}
end
local entries = count_of('zcard', ARGV[4])
if entries > 0 then
    -- 0 if the user may not TIME.
    local time = redis.pcall('time')
    local now = time[2] and time[1] * 1000 + math.floor(time[2] / 1000) or 0
    -- The next acquire reclaims expired entries: their permits are free.
    local expired = redis.pcall('zrangebyscore', ARGV[4], '-inf', now, 'limit',
                                0, 1000)
    for _, entry in ipairs(expired) do
        value = value + (tonumber(entry:match('^(%d+):')) or 0)
    end
    local first = redis.pcall('zrange', ARGV[4], #expired, #expired,
                              'withscores')
    local ttl = now > 0 and first[2] and math.max(first[2] - now, 0) or -1
    return {'semaphore', token, value, entries - #expired, ttl}
elseif count_of('hlen', ARGV[5]) > 0 then
    return {'latch', token, value, 0, redis.call('pttl', name)}
end
return {'counter', token, value, 0, redis.call('pttl', name)}
