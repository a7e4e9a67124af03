-- slots_acquire: take one of the permits, or say when the first of them ends.
--
-- KEYS  1 number of free permits   2 permits that are out, by their end
--       3 number of a slot -> id and owner of the permit
-- ARGV  1 id   2 owner   3 holds the owner will then have   4 lease in ms
--       5 slots, if nobody has said how many there are   6 '1' to tell the total
--       7 channel   and to be called when one is free: 8 the channel on which
--       this client is called   9 as 6 of mutex_acquire   then the commands to
--       publish with; none = 'publish'
-- Gives the number of the slot as text when taken, and behind a slash the total
--       if that was asked for; nil when a re-entry is; >= -1 when busy: ms until
--       the first permit ends, -1 if none does, with 8 and 9 an array as
--       mutex_acquire; -3 when the permit of a re-entry is gone; -6 when the key
--       holds no number.
--
-- Twice is harmless: the id is in the permits already, and is not counted once
-- more. Permits whose end has come are taken back first, unless one is free and
-- none has a number: then that can wait. If nobody has said how many there are,
-- or the number was lost, the permits that are out count. A slot's number is
-- free when the permit with it is not out. Who has it always writes, so that a
-- WAIT behind it counts it. Several permits may be free at once, while a release
-- calls one client. So a client that was called, or looked by itself, and got in
-- calls the next one if more are free.
local count, out, seats = KEYS[1], KEYS[2], KEYS[3]
local id, owner, how = ARGV[1], ARGV[2], ARGV[9]
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = ('%d'):format(now + ARGV[4])
local free = redis.call('get', count)

-- Some are free, and no number is noted: nearly every acquire ends here, so
-- there is no function yet. A permit that is out already, or whose number the
-- server refuses, goes the long way.
local noted
if free and #free <= 15 and free:find('^[1-9]%d*$') and ARGV[3] == '1' then
    noted = redis.call('hlen', seats)
    if noted == 0 and ARGV[6] ~= '1' and
        (not how or how == 'new' or how == 'publish') and
        redis.call('zadd', out, 'nx', ends, id) == 1 then
        redis.call('decrby', count, '1')
        if redis.pcall('hset', seats, '0', id .. owner) == 1 then
            local life = redis.call('pttl', count)
            if life > 0 then
                redis.call('pexpire', out, life)
                redis.call('pexpire', seats, life)
            end
            return '0'
        end
        redis.call('zrem', out, id)
        redis.call('incrby', count, '1')
    end
end

local slots = tonumber(ARGV[5])
how = how ~= 'publish' and how
local PUBLISH_ARGS = how and 10 or 8
--@include parse_int
if free and not parse_int(free) then
    return -6
end
free = parse_int(free)

if ARGV[3] ~= '1' then
    local score = tonumber(redis.call('zscore', out, id) or nil)
    if not score or score <= now then
        return -3
    end
    redis.call('zadd', out, 'xx', 'gt', ends, id)
    return false
end

-- A slot is noted. If the server refuses that, a permit that was fresh goes
-- back, and the error is given. Else the number, as text.
local function note_seat(seat, fresh)
    local done = redis.pcall('hset', seats, seat, id .. owner)
    if type(done) == 'table' then
        if fresh then
            redis.call('zrem', out, id)
            redis.call('incrby', count, '1')
        end
        return done
    end
    local life = redis.call('pttl', count)
    if life > 0 then
        redis.call('pexpire', out, life)
        redis.call('pexpire', seats, life)
    end
    if ARGV[6] == '1' then
        local total = redis.call('get', count) + redis.call('zcard', out)
        return ('%s/%.0f'):format(seat, total)
    end
    return tostring(seat)
end

--@include slot_permits
-- What has ended comes back, as far as that is needed.
local first = redis.call('zrange', out, '0', '0', 'withscores')
local back = 0
for _ = 1, 10 do
    if not first[1] or tonumber(first[2]) > now or
        (free or 0) + back > 0 and back > 0 then
        break
    end
    local some = reclaim(out)
    back = back + some
    first = redis.call('zrange', out, '0', '0', 'withscores')
    if some == 0 then
        break
    end
end
if not free then
    free = slots - redis.call('zcard', out)
    redis.call('set', count, ('%.0f'):format(free))
    back = math.max(free, 1) -- those who waited for it hear of it
elseif back > 0 then
    free = redis.call('incrby', count, back)
end

-- What is noted of the slots from `low` on.
local function seats_from(low, many)
    local numbers = {}
    for i = 1, many do
        numbers[i] = tostring(low + i - 1)
    end
    return redis.call('hmget', seats, unpack(numbers))
end

-- What is noted of the first slots, and the numbers that this permit has. Few
-- notes are read at once: one of the first numbers, one more than there are
-- notes, is free then. Of many, only the first are read.
local function first_seats()
    noted = noted or redis.call('hlen', seats)
    if noted > 100 then
        return seats_from(0, 100), {}
    end
    local all = redis.call('hgetall', seats)
    local notes, own = {}, {}
    for i = 1, noted + 1 do
        notes[i] = false
    end
    for i = 1, #all, 2 do
        local number = tonumber(all[i])
        if number and all[i + 1]:sub(1, 16) == id then
            own[#own + 1] = number
        elseif number and notes[number + 1] == false then
            notes[number + 1] = all[i + 1]
        end
    end
    return notes, own
end

-- The lowest number that nobody has whose permit is out, from the first notes
-- on. A permit has one number: one that this permit had before is free, too.
local function free_seat(notes)
    local low = 0
    while true do
        local others, vacant = {}, nil -- others: those before the vacant one
        for i, note in ipairs(notes) do
            local own = note and note:sub(1, 16) == id
            if own then
                redis.call('hdel', seats, low + i - 1)
            end
            if own or not note then
                vacant = vacant or low + i - 1
            elseif not vacant then
                others[i] = note:sub(1, 16)
            end
        end
        if #others > 0 then
            local scores = redis.call('zmscore', out, unpack(others))
            for i = 1, #others do
                if not scores[i] then
                    return low + i - 1
                end
            end
        end
        if vacant then
            return vacant
        end
        low = low + #notes -- there are many
        notes = seats_from(low, 100)
    end
end

-- The number that this permit has already, the lowest if there are several;
-- nil: none. own: those that are known.
local function own_seat(own)
    if noted <= 100 then
        return own[1] and math.min(unpack(own))
    end
    local all = redis.call('hgetall', seats)
    local lowest
    for i = 1, #all, 2 do
        local number = tonumber(all[i])
        if all[i + 1]:sub(1, 16) == id and number then
            lowest = math.min(lowest or number, number)
        end
    end
    return lowest
end

local answer, fresh
if free >= 1 or redis.call('zscore', out, id) then
    local notes, own = first_seats()
    fresh = free >= 1 and redis.call('zadd', out, 'nx', ends, id) == 1
    if fresh then
        free = redis.call('decrby', count, '1')
        if own[1] then
            redis.call('hdel', seats, unpack(own))
        end
    end
    answer = note_seat(not fresh and own_seat(own) or free_seat(notes), fresh)
end
if type(answer) == 'table' then
    return answer
elseif answer and not fresh then
    redis.call('zadd', out, 'gt', ends, id)
end
if answer and (how == 'again' or how == 'foreign') then
--@include leave_queue
    leave_queue(ARGV[7], ARGV[8], how)
end
if free > 0 and (back > 0 or answer and how and how ~= 'new') then
--@include publish
--@include notify_waiter
    if back > 0 then
--@include notify_free
        notify_free(ARGV[7], free, back)
    end
    notify_waiter(ARGV[7], count, 0, back > 0 and '0')
end
if answer then
    return answer
end
local ms = first[1] and tonumber(first[2]) < NEVER and
    math.max(end_of(first[1], first[2]) - now, 0) or -1
if not how then
    return ms
end
--@include register
return {ms, register(ARGV[7], ARGV[8], how)}
