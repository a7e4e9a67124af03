-- around: what the build puts around each script, in the place of --@script: a
-- call and its answer have a number.
--
-- The last argument of each call is a small number, another one for each sending.
-- The script does not see it. The answer begins with it, so that a reply that was
-- left over, or is another's, is known as such:
--
--   the script gives    the answer is
--   nil, false          'NUMBER'
--   a number            'NUMBER -1'
--   a text              'NUMBER=text'
--   an array            {'NUMBER', the array}
--   an error            the error: it is never a yes
--
-- Texts, because an array costs the server twice as much.

local number = ARGV[#ARGV]
ARGV[#ARGV] = nil
local function script()
--@script
end
local answer = script()
if not answer then
    return number
elseif type(answer) == 'number' then
    return ('%s %.0f'):format(number, answer)
elseif type(answer) == 'string' then
    return number .. '=' .. answer
elseif answer.err then
    return answer
end
return {number, answer}
