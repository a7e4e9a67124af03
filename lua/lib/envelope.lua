-- envelope: wraps each script: copies the request number into the reply.
--
-- The last argument of every script is a request number, different for each
-- sending. It is removed from ARGV before the script runs. The reply begins
-- with it, so the client detects a reply that belongs to another request:
--
--   the script returns    the reply is
--   nil, false            'NUMBER'
--   a number              'NUMBER -1'
--   a string              'NUMBER=string'
--   an array              {'NUMBER', the array}
--   an error              the error, unnumbered: an error is never a success
--
-- Strings, because the server needs twice the time for an array.

local request = ARGV[#ARGV]
ARGV[#ARGV] = nil
local function script()
--@script
end
local answer = script()
if not answer then
    return request
elseif type(answer) == 'number' then
    -- Concatenation is faster; it is exact up to 14 digits.
    if answer % 1 == 0 and answer < 1e14 then
        return request .. ' ' .. answer
    end
    return ('%s %.0f'):format(request, answer)
elseif type(answer) == 'string' then
    return request .. '=' .. answer
elseif answer.err then
    return answer
end
return {request, answer}
