-- register: puts a client among the waiters of a lock.
--
-- Gives register(channel, mine, how). The keys are made from the name of the
-- lock's channel. They are not in KEYS, so that a user without a right to them
-- waits as if there were no queue.
--
-- The queue has the channels of the clients that wait, the oldest first; a
-- client is in it once. It ends 10 s after the last one asked; each asks every
-- two seconds. The listener is one of them, for 5 s after it asked. It listens
-- to the lock's channel for all, because clients that do not know this queue
-- release the lock without a call. While such clients are faster than the
-- listener, each client that waits must listen: the listener is 'all' then.

-- mine: the channel on which this client is called. how: 'called' goes to the
-- front, for it was called and another one was faster; others go to the end, or
-- keep their place. 'foreign': the client that asks heard of a release that
-- called nobody.
-- Gives 0 when it is not registered: then it must listen to the lock's channel
-- and ask after each message. 1: it will be called. 2: it will be called, and
-- listens to the lock's channel, too, while it waits; where fewer than two wait,
-- each does, so that one may go. 3: as 2, but it listens for at least 5 s, also
-- when it does not wait any more.
local function register(channel, mine, how)
    local name = channel:match(':.*') or ''
    local queue = 'dibs_lock_waiters' .. name
    local listener = 'dibs_lock_listener' .. name
    local last = redis.pcall('zrange', queue, -2, -1, 'withscores')
    local place = (tonumber(last[#last]) or 0) + 1
    if how == 'called' and last[1] then
        local first = redis.pcall('zrange', queue, 0, 0, 'withscores')
        place = (tonumber(first[2]) or 0) - 1
    end
    local done = redis.pcall('zadd', queue, 'nx', place, mine)
    if type(done) == 'table' then
        return 0
    end
    done = redis.pcall('pexpire', queue, 10000)
    if type(done) == 'table' then
        redis.pcall('zrem', queue, mine)
        return 0
    end
    local who = redis.pcall('get', listener)
    if how == 'foreign' or not who or who == mine then
        who = how == 'foreign' and 'all' or mine
        redis.pcall('set', listener, who, 'px', 5000)
        return 3
    end
    return (type(who) == 'table' or who == 'all' or #last < 4) and 2 or 1
end
