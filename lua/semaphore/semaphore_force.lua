-- semaphore_force: give back what one acquire took, however many that are.
--
-- KEYS  1 number of free permits   2 the book: permits:owner, by the end of the
--       lease
-- ARGV  1 owner   2 channel, then the commands to publish with; none = 'publish'
-- Gives 1 when it gave back something, 0 when the book has no such owner.
--
-- Used to take back what was granted too late. It looks through the whole book,
-- which is not long, and is seldom done.
local count, book = KEYS[1], KEYS[2]
local owner = ':' .. ARGV[1]
local HOW = 3
--@include publish
--@include tell_free
--@include whole

local free = redis.call('get', count)
if not free then
    redis.call('del', book) -- it was deleted, and nothing is given back
    return 0
elseif not whole(free) then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
for first = 0, redis.call('zcard', book), 1000 do
    local some = redis.call('zrange', book, first, first + 999)
    for _, entry in ipairs(some) do
        local many, who = entry:match('^(%d+)(:.*)$')
        if who == owner then
            redis.call('zrem', book, entry)
            free = redis.call('incrby', count, many)
            tell_free(ARGV[2], free, tonumber(many))
            return 1
        end
    end
end
return 0
