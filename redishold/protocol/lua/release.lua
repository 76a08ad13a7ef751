-- Ends a hold, handing the lock to the first waiter if there is one, or takes a waiter out of the queue.
--
-- KEYS  lock, queue, waiters, fence; if a request to acquire may still arrive, the owner's end as well
-- ARGV  owner, for how many ms its end is remembered
-- Gives 1 if the owner held the lock, 2 if it waited, 0 if neither.

local owner = ARGV[1]
if KEYS[5] then
	redis.pcall('SET', KEYS[5], '', 'PX', ARGV[2]) -- a server without memory refuses it, and must release all the same
end

local holder = redis.pcall('GET', KEYS[1])
if type(holder) == 'table' then
	return redis.error_reply('NOTALOCK ' .. holder.err)
end

if redis.call('EXISTS', KEYS[2]) == 0 then
	if holder ~= owner then
		return 0
	end
	redis.call('DEL', KEYS[1])
	return 1
end

-- include draw.lua
-- include queue.lua

if holder == owner then
	if not hand_over() then
		redis.call('DEL', KEYS[1])
	end
	return 1
end
local waited = forget(owner)
if not holder then
	hand_over()
end
return waited and 2 or 0
