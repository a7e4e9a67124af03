-- latch: what the scripts of a latch share.
--
-- Beside the count is a hash of notes: '#' which life of the latch this is, '!'
-- its deadline, a ticket -> the life in which it counted, 's:' and a request ->
-- the life that it began. '@' is there once there are many: a life, when it
-- ended, and how far its notes and older ones are forgotten.

local WEEK = 604800000 -- ms for which notes are kept
local OLD = 120000 -- ms; longer than a request can be on its way
local FEW, PAGE, PAGES = 64, 1000, 100

-- Forgets one page of what was noted in lives up to this one. Gives where the
-- next page begins; '0' when that was the last, or the user may not do it.
local function forget_page(notes, life, cursor)
    local page = redis.pcall('hscan', notes, cursor, 'count', PAGE)
    local old = {}
    for i = 1, #(page[2] or {}), 2 do
        local ended = page[2][i]:find('^[cns]:') and tonumber(page[2][i + 1])
        if ended and ended <= life then
            old[#old + 1] = page[2][i]
        end
    end
    for i = 1, #old, PAGE do
        redis.call('hdel', notes, unpack(old, i, math.min(i + PAGE - 1, #old)))
    end
    return page[2] and page[1] or '0'
end

-- A life has ended just now. What was noted up to it is forgotten when nobody
-- can send it again; or a latch that is used for ever would grow for ever.
local function forget_notes(notes, life)
    if redis.call('hlen', notes) <= FEW then
        return
    end
    local time = redis.call('time')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local mark = redis.call('hget', notes, '@') or ''
    local upto, since, cursor = mark:match('^(%d+) (%d+) (%d+)$')
    if upto and now - since < OLD and now >= tonumber(since) then
        return
    end
    for _ = 1, upto and PAGES or 0 do
        cursor = forget_page(notes, tonumber(upto), cursor)
        if cursor == '0' then
            break
        end
    end
    if not upto or cursor == '0' then
        upto, since, cursor = life, now, '0'
    end
    redis.call('hset', notes, '@', ('%s %.0f %s'):format(upto, since, cursor))
end

-- A new life: names may be used again. Tickets of calls stay for a while, in
-- case one is sent again.
local function new_life(notes)
    local life = redis.call('hincrby', notes, '#', 1)
    redis.call('pexpire', notes, WEEK)
    forget_notes(notes, life - 1)
    return life
end

-- Nobody needs to wait any more. Gives the life that begins.
local function open_latch(latch, notes, channel)
    redis.call('del', latch)
    local life = new_life(notes)
    redis.call('hdel', notes, '!')
    publish(channel, '0')
    return life
end
