-- read_release: give back one read hold; the last of an owner ends its reading,
-- the last of all frees the lock.
--
-- KEYS  1 lock hash   2 this owner's read key   3 channel
-- ARGV  1 owner   2 holds it will then have   3 key_prefix and 4 key_suffix of the name of
--       an owner's read key, which has the number of a hold behind it   5 an
--       owner of the same client who reads, too, as far as that knows; '' =
--       none   then the commands to publish with; none = 'publish'
-- Gives >= 1 when its reading ended, 0 when held once less, -1 when this owner
--       does not read, or its lease is over.
--
-- Readers whose lease is over do not count, and go when they are met. If the
-- one that the client names lives, and for about as long as the lock, nobody
-- else is looked at. Otherwise a few are, and only if none of those lives, all.
-- So with many readers this costs no more than with few. Another client may
-- have a read key for each of an owner's holds: one that lives is enough. If
-- the lock would last much longer than its readers, it is shorten_ttl, but never
-- below the longest of them. What is neither an owner nor the mode is an
-- application's, and stays. Twice is harmless, and a full server refuses
-- nothing of this.
local key, mine, channel = KEYS[1], KEYS[2], KEYS[3]
local owner, target, key_prefix, key_suffix = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local known, PUBLISH_ARGS = ARGV[5], 6
local FEW, SHORT, MOST = 4, 16, 1000

-- That one is in the hash, so this is the lock that the client means.
if target == '0' and known ~= '' and known ~= owner and
    redis.call('hexists', key, known) == 1 then
    local left = redis.call('pttl', key)
    local life = redis.call('pttl', key_prefix .. known .. key_suffix .. '1')
    if left >= 0 and 2 * life >= left then
        local was = redis.call('hdel', key, owner)
        return redis.call('del', mine) == 1 and was == 1 and 1 or -1
    end
end
--@include publish

-- The lock is free. Gives what the script answers.
local function tell(ended)
    local heard = publish(channel, '0')
    if heard >= 0 or ARGV[#ARGV] == 'publish' then
--@include notify_waiter
        heard = notify_waiter(channel, key, heard, '2')
    end
    return ended and 1 + math.max(heard, 0) or -1
end

-- Nearly always the hash has nothing but the mode and this owner.
local some = target == '0' and redis.call('hrandfield', key, FEW, 'withvalues')
local two = some and #some == 4 and {[some[1]] = some[2], [some[3]] = some[4]}
if two and two[owner] and two.mode and two.mode ~= 'write' then
    return tell(redis.call('del', key, mine) == 2)
end
--@include set_lower_count

local found = redis.call('hmget', key, owner, 'mode')
if not found[1] or not found[2] then
    redis.call('del', mine)
    return -1
elseif target ~= '0' and redis.call('exists', mine) == 1 then
    return set_lower_count(key, owner, found[1], target)
end

local more = false -- there is something that is not a lock's
local answer = redis.call('del', mine) == 1 and 1 or -1
redis.call('hdel', key, owner)
if found[2] == 'write' then
    return answer
end
--@include is_lock

-- The longest lease of these owners, -1 if none lives; looks no further once it
-- is enough. all: field, value and so on.
local function longest(all, enough)
    local most = -1
    for i = 1, #all, 2 do
        local life = -1
        local holds = all[i] ~= owner and tonumber(all[i + 1]) or 0
        for n = 1, math.min(holds, MOST) do
            local ms = redis.call('pttl', key_prefix .. all[i] .. key_suffix .. n)
            life = math.max(life, ms == -1 and math.huge or ms)
            if life >= enough then
                return life
            end
        end
        if all[i] ~= 'mode' and not is_hold(all[i], '1') then
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

if others() then
    return answer
elseif not more then
    redis.call('del', key)
end
return tell(answer == 1)
