-- Renews leases, each only if the lock is still the owner's. A lock that is gone is never set again.
--
-- KEYS  locks
-- ARGV  for each: owner, TTL in ms
-- Gives a string with a character for each: 1 for renewed, 0 for lost, s if several share it and keep.lua must be
-- asked, ? for an error. If there are errors, it gives a list of the string and the errors in order.

local states, errors = {}, {}
for i, lock in ipairs(KEYS) do
	-- pcall: a key that the server refuses must not spoil the others' renewal.
	local answer = redis.pcall('GETRANGE', lock, '0', '1024') -- a byte more than an owner value has
	if answer == ARGV[2 * i - 1] then
		answer = redis.pcall('PEXPIRE', lock, ARGV[2 * i])
		states[i] = '1'
	elseif answer == 'holdfast:shared' then
		states[i] = 's'
	else
		states[i] = '0'
	end
	if type(answer) == 'table' then
		states[i] = '?'
		errors[#errors + 1] = answer.err
	end
end

local summary = table.concat(states)
if #errors == 0 then
	return summary
end
table.insert(errors, 1, summary)
return errors
