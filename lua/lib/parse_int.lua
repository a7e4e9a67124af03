-- whole: tells a counter from something else.

-- The number that a key's text stands for; nil if it is no whole number, or one
-- that Lua cannot count with.
local function parse_int(text)
    if type(text) == 'string' and #text <= 16 and text:find('^%-?%d+$') then
        return tonumber(text)
    end
end
