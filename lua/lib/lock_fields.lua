-- lock_fields: distinguishes the fields of a lock from an application's.
--
-- Provides UUID, is_hold(field, value), all_holds(fields).

-- An owner is a UUID, a colon and a number; a transaction appends to that.
local UUID = '^%x+%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x+:%-?%d'

-- Returns whether this hash field is an owner, and its value a hold count.
local function is_hold(field, value)
    return field:find(UUID) and field:sub(37, 37) == ':' and
        value:find('^[1-9]%d*$')
end

-- Returns whether these fields (field, value, field, ...) are a lock's: owners
-- with their hold counts, optionally the mode, and nothing else. True for none.
local function all_holds(fields)
    local owners = 0
    for i = 1, #fields, 2 do
        local is_mode = fields[i] == 'mode' and
            (fields[i + 1] == 'read' or fields[i + 1] == 'write')
        if not is_mode and not is_hold(fields[i], fields[i + 1]) then
            return false
        end
        owners = owners + (is_mode and 0 or 1)
    end
    return owners > 0 or #fields == 0
end
