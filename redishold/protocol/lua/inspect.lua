-- Describes a lock and its waiters, and changes nothing.
--
-- KEYS  lock, queue, waiters, readers
-- Gives {holder, what remains of its TTL in ms, then for each live waiter, in order, its owner value and what
-- remains of its presence in ms}. The holder is nil if there is none. If the lock is shared it is a list: for each
-- live reader, the longest lease first, its owner value and what remains of its lease in ms. If the key is a small
-- hash it is a list of fields and values, each cut after 1,025 bytes.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local holder = redis.pcall('GETRANGE', KEYS[1], '0', '1024') -- a byte more than an owner value has
if type(holder) == 'table' then
	-- pcall: the key may not be a hash either, or the user may lack the right. Then the first error says why.
	local size = redis.pcall('HLEN', KEYS[1])
	local fields = type(size) == 'number' and size <= 100 and redis.pcall('HGETALL', KEYS[1])
	if not fields or fields.err then
		return holder
	end
	for i, text in ipairs(fields) do
		fields[i] = string.sub(text, 1, 1025)
	end
	return { fields, redis.call('PTTL', KEYS[1]) }
end
if holder == '' and redis.call('EXISTS', KEYS[1]) == 0 then
	holder = false
elseif holder == 'holdfast:shared' then
	holder = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', '-' .. now, 'WITHSCORES')
	for i = 2, #holder, 2 do
		holder[i] = -holder[i] - now
	end
end
local entry = { holder, redis.call('PTTL', KEYS[1]) }
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '0', '+inf')) do
	local waiter = string.sub(member, 2)
	local ends = string.match(redis.call('HGET', KEYS[3], waiter) or '', '^%d+')
	if ends and ends - now > 0 then
		entry[#entry + 1] = waiter
		entry[#entry + 1] = ends - now
	end
end
return entry
