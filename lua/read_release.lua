-- read_release: give back one read hold; the last of an owner ends its reading,
-- the last of all frees the lock.
--
-- KEYS  1 lock hash   2 this owner's read key   3 channel
-- ARGV  1 owner   2 holds it will then have   3 head and 4 tail of the name of
--       an owner's read key, which has the number of a hold behind it   5 an
--       owner who reads, too, as far as the client knows; '' = none   then the
--       commands to publish with; none = 'publish'
-- Gives >= 1 when its reading ended, 0 when held once less, -1 when this owner
--       does not read, or its lease is over.
--
-- Readers whose lease is over do not count, and go when they are met. To find
-- one that counts, the one that the client names is looked at first, then a few
-- others; only if none of those lives, all. So with many readers this costs no
-- more than with few. Another client may have a read key for each of an owner's
-- holds: one that lives is enough. If the lock would last much longer than its
-- readers, it is shortened, but never below the longest of them. What is
-- neither an owner nor the mode is an application's, and stays. Twice is
-- harmless, and a full server refuses nothing of this (see basic_release). An
-- owner is a UUID, a colon and a number; a transaction puts more behind it.
local UUID = '^%x+%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x+:%-?%d'
local key, mine, channel = KEYS[1], KEYS[2], KEYS[3]
local owner, target, head, tail = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local found = redis.call('hmget', key, owner, 'mode', ARGV[5])
local FEW, SHORT, MOST = 4, 16, 1000

if not found[1] or not found[2] then
    redis.call('del', mine)
    return -1
end
if target ~= '0' and redis.call('exists', mine) == 1 then
    if (tonumber(found[1]) or math.huge) > tonumber(target) then
        local done = redis.pcall('hset', key, owner, target)
        if type(done) == 'table' then
            redis.pcall('hdel', key, '')
            redis.call('hset', key, owner, target)
        end
    end
    return 0
end

local named = found[3] and ARGV[5] ~= owner and {ARGV[5], found[3]}
local some, alone, answer
local more = false -- there is something that is not a lock's
if found[2] ~= 'write' and not named then
    some = redis.call('hrandfield', key, FEW, 'withvalues')
    alone = #some == 4 -- the mode, and this owner
end
if alone then
    answer = redis.call('del', key, mine) == 2 and 1 or -1
else
    answer = redis.call('del', mine) == 1 and 1 or -1
    redis.call('hdel', key, owner)
end
if found[2] == 'write' then
    return answer
end

-- The longest lease of these owners, -1 if none lives; looks no further once it
-- is enough. all: field, value and so on.
local function longest(all, enough)
    local most = -1
    for i = 1, #all, 2 do
        local life = -1
        local holds = all[i] ~= owner and tonumber(all[i + 1]) or 0
        for n = 1, math.min(holds, MOST) do
            local ms = redis.call('pttl', head .. all[i] .. tail .. n)
            life = math.max(life, ms == -1 and math.huge or ms)
            if life >= enough then
                return life
            end
        end
        if all[i] ~= 'mode' and (not all[i]:find(UUID) or
            all[i]:sub(37, 37) ~= ':') then
            more = true
        elseif life < 0 and all[i] ~= 'mode' then
            redis.call('hdel', key, all[i])
        end
        most = math.max(most, life)
    end
    return most
end

-- Does anybody else read?
local function others()
    local left = redis.call('pttl', key)
    local enough = left < 0 and math.huge or left / 2
    if named and longest(named, enough) >= enough then
        return true
    end
    some = some or redis.call('hrandfield', key, FEW, 'withvalues')
    local most, all = longest(some, enough), #some < 2 * FEW
    if not all and
        (most < 0 or (most < enough and redis.call('hlen', key) <= SHORT)) then
        most, all = longest(redis.call('hgetall', key), enough), true
    end
    if all and most >= 0 and most < enough and most < math.huge then
        redis.call('pexpire', key, math.max(most, 1))
    end
    return most >= 0
end

if not alone then
    if others() then
        return answer
    end
    if not more then
        redis.call('del', key)
    end
end
local most = 0
for i = 6, math.max(6, #ARGV) do
    local heard = redis.pcall(ARGV[i] or 'publish', channel, '0')
    most = math.max(most, type(heard) == 'number' and heard or 0)
end
return answer == 1 and 1 + most or answer
