-- latch: generations and notes of a latch.
--
-- Requires publish. Provides WEEK, new_generation(notes),
-- open_latch(latch, notes, channel).
--
-- Beside the count is a hash of notes:
--
--   '#'             number of the current generation; each set or opening of
--                   the latch begins one
--   '!'             deadline, server time in ms; 'past' once it was reported
--   'c:'/'n:' ticket generation in which this idempotency token of a countdown
--                   counted ('n:' a name, valid again in a new generation)
--   's:' request    generation that this request began
--   '@'             clean-up state, if there are many notes: generation up to
--                   which notes are deleted, when it ended, HSCAN cursor

local WEEK = 604800000 -- ms for which notes are kept
local OLD = 120000 -- ms; longer than a request can be in flight
local FEW, PAGE, MAX_PAGES = 64, 1000, 100

-- Deletes notes of generations up to this one, in one HSCAN page. Returns the
-- next cursor; '0' after the last page, or if the user may not HSCAN.
local function delete_page(notes, generation, cursor)
    local page = redis.pcall('hscan', notes, cursor, 'count', PAGE)
    local old = {}
    for i = 1, #(page[2] or {}), 2 do
        local ended = page[2][i]:find('^[cns]:') and tonumber(page[2][i + 1])
        if ended and ended <= generation then
            old[#old + 1] = page[2][i]
        end
    end
    for i = 1, #old, PAGE do
        redis.call('hdel', notes, unpack(old, i, math.min(i + PAGE - 1, #old)))
    end
    return page[2] and page[1] or '0'
end

-- A generation has just ended. Its notes are deleted once its requests cannot
-- be in flight any more; without that the notes of a reused latch would grow
-- without bound.
local function delete_old_notes(notes, generation)
    if redis.call('hlen', notes) <= FEW then
        return
    end
--@include now
    local state = redis.call('hget', notes, '@') or ''
    local upto, ended_at, cursor = state:match('^(%d+) (%d+) (%d+)$')
    if upto and now - ended_at < OLD and now >= tonumber(ended_at) then
        return
    end
    for _ = 1, upto and MAX_PAGES or 0 do
        cursor = delete_page(notes, tonumber(upto), cursor)
        if cursor == '0' then
            break
        end
    end
    if not upto or cursor == '0' then
        upto, ended_at, cursor = generation, now, '0'
    end
    redis.call('hset', notes, '@',
               ('%s %.0f %s'):format(upto, ended_at, cursor))
end

-- Begins a generation: names are valid again. Tickets are kept for a while, in
-- case a countdown is repeated.
local function new_generation(notes)
    local generation = redis.call('hincrby', notes, '#', 1)
    redis.call('pexpire', notes, WEEK)
    delete_old_notes(notes, generation - 1)
    return generation
end

-- Opens the latch and wakes its waiters. Returns the generation that begins.
local function open_latch(latch, notes, channel)
    redis.call('del', latch)
    local generation = new_generation(notes)
    redis.call('hdel', notes, '!')
    publish(channel, '0')
    return generation
end
