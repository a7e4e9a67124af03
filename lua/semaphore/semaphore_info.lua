-- semaphore_info: how many permits are free, and how many are in the book.
--
-- KEYS  1 number of free permits   2 the book: permits:owner, by the end of the
--       lease
-- ARGV  1 channel, then the commands to publish with; none = 'publish'
-- Gives an array: 1 if somebody has said how many there are, else 0; how many
--       are free; how many entries the book has; ms until the first of them
--       ends, -1 if there is none. An error when the key holds no number.
--
-- What holders that are gone had comes back first, if the caller may do that;
-- the book of a semaphore that was deleted is void.
local count, book = KEYS[1], KEYS[2]
local HOW = 2
--@include publish
--@include tell_free
--@include whole
--@include held

local free = redis.call('get', count)
if not free then
    redis.pcall('del', book)
    return {0, 0, 0, -1}
elseif not whole(free) then
    return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
local ended = first_end(book) == 0
local back
free = whole(free)
if ended then
    free, back = reclaim(count, book, free, math.huge)
    tell_free(ARGV[1], back > 0 and free or 0, back)
end
return {1, free, redis.call('zcard', book), first_end(book)}
