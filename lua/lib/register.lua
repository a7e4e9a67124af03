-- register: adds a client to the wait queue of a lock.
--
-- Provides register(channel, client_channel, attempt).
--
-- Both keys are derived from the lock's channel. They are not in KEYS, so that
-- a user without access to them waits as if there were no queue.
--
-- dibs_lock_waiters   sorted set of the waiting clients' own channels, oldest
--                     first. Expires 10 s after the last registration; clients
--                     register every two seconds.
-- dibs_lock_listener  the channel of the one client that listens to the lock's
--                     channel on behalf of all, for 5 s after it registered:
--                     clients that do not know the queue (Redisson) release the
--                     lock without notifying a waiter. 'all' while such clients
--                     win against the listener: every waiter must listen then.

-- client_channel: on which this client is notified. attempt:
--
--   'new'      the first acquire
--   'again'    a retry of the client's own
--   'called'   after a notification, but another client was faster: the client
--              re-enters at the front
--   'foreign'  after a release that notified no waiter
--
-- A client keeps its place if it has one. Returns one of these constants.
local function register(channel, client_channel, attempt)
    -- The client must listen to the lock's channel and retry at each message.
    local NOT_REGISTERED = 0
    local NOTIFIED = 1 -- it will be notified
    -- It will be notified, and listens to the lock's channel while it waits. Up
    -- to two waiters listen, so that one of them may leave.
    local NOTIFIED_AND_LISTENS = 2
    local LISTENER = 3 -- as above, for at least 5 s, even after waiting

    local suffix = channel:match(':.*') or ''
    local queue = 'dibs_lock_waiters' .. suffix
    local listener_key = 'dibs_lock_listener' .. suffix
    local last_two = redis.pcall('zrange', queue, -2, -1, 'withscores')
    local place = (tonumber(last_two[#last_two]) or 0) + 1
    if attempt == 'called' and last_two[1] then
        local first = redis.pcall('zrange', queue, 0, 0, 'withscores')
        place = (tonumber(first[2]) or 0) - 1
    end
    local done = redis.pcall('zadd', queue, 'nx', place, client_channel)
    if type(done) == 'table' then
        return NOT_REGISTERED
    end
    done = redis.pcall('pexpire', queue, 10000)
    if type(done) == 'table' then
        redis.pcall('zrem', queue, client_channel)
        return NOT_REGISTERED
    end
    local listener = redis.pcall('get', listener_key)
    if attempt == 'foreign' or not listener or listener == client_channel then
        listener = attempt == 'foreign' and 'all' or client_channel
        redis.pcall('set', listener_key, listener, 'px', 5000)
        return LISTENER
    end
    local few = #last_two < 4
    return (type(listener) == 'table' or listener == 'all' or few) and
        NOTIFIED_AND_LISTENS or NOTIFIED
end
