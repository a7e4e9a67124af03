-- parse_int: distinguishes a counter from other values.
--
-- Provides parse_int(text).

-- Returns the integer in a key's text; nil if it is none, or if Lua's numbers
-- cannot represent it exactly.
local function parse_int(text)
    if type(text) == 'string' and #text <= 16 and text:find('^%-?%d+$') then
        return tonumber(text)
    end
end
