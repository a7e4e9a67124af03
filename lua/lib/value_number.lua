-- value_number: whether the holder of a lock published a value, and which one.
--
-- Gives value_number(key, all).

-- key: of the value, which the script may have no right to read; nil: nobody
-- asks. all: fields of the lock, each followed by its count. Gives the number
-- of the value; nil if its owner is none of them, or it was taken back. Longer
-- numbers are a stranger's.
local function value_number(key, all)
    local value = key and #all > 0 and redis.pcall('get', key)
    local text = type(value) == 'string' and value or ''
    local who, number = text:match('^(%S+) (%d+) .')
    for i = 1, #all, 2 do
        if all[i] == who and #number <= 16 then
            return tonumber(number)
        end
    end
end
