-- Renews leases like renew.lua, for owners that share their locks.
--
-- KEYS  for each: lock, readers
-- ARGV  for each: owner, TTL in ms
-- Gives what renew.lua gives. For a lock that the owner holds alone it gives a, and does not renew it.

-- include clock.lua
-- include share.lua

local states, errors = {}, {}
for i = 1, #KEYS / 2 do
	local lock, readers, owner, ttl = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i - 1], ARGV[2 * i]
	-- pcall: a key that the server refuses must not spoil the others' renewal.
	local answer = redis.pcall('GETRANGE', lock, '0', '1024') -- a byte more than an owner value has
	states[i] = answer == owner and 'a' or '0'
	if answer == 'holdfast:shared' then
		answer = redis.pcall('ZSCORE', readers, owner)
		if type(answer) == 'string' and -answer >= now then
			redis.call('PEXPIRE', lock, ttl) -- a server that is out of memory refuses nothing behind this
			extend(lock, readers, owner, now + ttl)
			states[i] = '1'
		end
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
