-- Ends a hold, handing the lock to the first waiter if there is one, or takes a waiter out of the queue.
--
-- KEYS  lock, queue, waiters, fence; if a request to acquire may still arrive, the owner's end as well
-- ARGV  owner, for how many ms its end is remembered
-- Gives 1 if the owner held the lock, 2 if it waited, 0 if neither.

local owner = ARGV[1]

if KEYS[5] then
	redis.pcall('SET', KEYS[5], '', 'PX', ARGV[2]) -- a server that is out of memory refuses this, but must still release
end

local holder = redis.pcall('GETRANGE', KEYS[1], '0', '1023') -- no owner value is longer, but another's value may be
if type(holder) == 'table' then
	return redis.error_reply('NOTALOCK ' .. holder.err)
end
if holder == '' and redis.call('EXISTS', KEYS[1]) == 0 then
	holder = nil
end

if redis.call('EXISTS', KEYS[2]) == 0 then
	if holder ~= owner then
		return 0
	end
	redis.call('DEL', KEYS[1])
	return 1
end

-- include clock.lua
-- include draw.lua
-- include hand_over.lua

if holder == owner then
	if not hand_over() then
		redis.call('DEL', KEYS[1])
	end
	return 1
end

redis.call('HDEL', KEYS[3], owner)
local ends = redis.call('ZSCORE', KEYS[2], '<' .. owner)
redis.call('ZREM', KEYS[2], '>' .. owner, '<' .. owner)
if not holder then
	hand_over()
end
-- A waiter that was dead by then had lost its place already.
return ends and -ends > now and 2 or 0
