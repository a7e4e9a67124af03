-- latch: what the scripts of a latch share.
--
-- Beside the count is a hash of notes: '#' which life of the latch this is, '!'
-- its deadline, a ticket -> the life in which it counted, 's:' and a request ->
-- the life that it began.

local WEEK = 604800000 -- ms for which notes are kept

-- A new life: names may be used again. Tickets of calls stay, in case one is
-- sent again.
local function new_life(notes)
    local life = redis.call('hincrby', notes, '#', 1)
    redis.call('pexpire', notes, WEEK)
    return life
end

-- Nobody needs to wait any more.
local function open_latch(latch, notes, channel)
    redis.call('del', latch)
    new_life(notes)
    redis.call('hdel', notes, '!')
    publish(channel, '0')
end
