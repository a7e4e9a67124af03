-- value_number: the number of the value that the holder of a lock published.
--
-- Provides value_number(key, fields).

-- key: the value's, which the user may have no right to read; nil: not wanted.
-- fields: of the lock, each followed by its count. Returns nil if no holder
-- published a value, or deleted it. A number of more than 16 digits was not
-- written by this library.
local function value_number(key, fields)
    local value = key and #fields > 0 and redis.pcall('get', key)
    local text = type(value) == 'string' and value or ''
    local publisher, digits = text:match('^(%S+) (%d+) .')
    for i = 1, #fields, 2 do
        if fields[i] == publisher and #digits <= 16 then
            return tonumber(digits)
        end
    end
end
