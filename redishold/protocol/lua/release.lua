-- Ends a hold, and hands the lock to the first waiter if there is one; or takes a waiter out of the queue. An
-- owner that shares the lock leaves it to the others.
--
-- KEYS  lock, queue, waiters, fence, readers; also the owner's last late request, over connections on which one
--       request may overtake another
-- ARGV  owner; with that key also which client sends this request, and its number there; and, if earlier requests
--       of the client may still arrive, the number of the last of them, and for how many ms that is remembered
-- Gives 1 if the owner held the lock, 2 if it waited, 0 if neither; and 4 more if the server could not remember
-- the number that it was told.

local owner, untold = ARGV[1], 0

if KEYS[6] then
	local late = redis.pcall('GET', KEYS[6])
	local client, last = string.match(type(late) == 'string' and late or '', '^(%S+) (%d+)$')
	if client == ARGV[2] and tonumber(ARGV[3]) <= tonumber(last) then
		return 0 -- the owner has asked again before this request arrived
	end
	if ARGV[4] and redis.pcall('SET', KEYS[6], ARGV[2] .. ' ' .. ARGV[4], 'PX', ARGV[5]).err then
		untold = 4 -- a server that is out of memory refuses this, but must still release
	end
end

local holder = redis.pcall('GETRANGE', KEYS[1], '0', '1024') -- a byte more than an owner value has
if type(holder) == 'table' then
	return redis.error_reply('NOTALOCK ' .. holder.err)
end
if holder == '' and redis.call('EXISTS', KEYS[1]) == 0 then
	holder = nil
end

local shared = holder == 'holdfast:shared'
if not shared and redis.call('EXISTS', KEYS[2]) == 0 then
	if holder ~= owner then
		return untold
	end
	redis.call('DEL', KEYS[1])
	return untold + 1
end

-- include clock.lua
-- include draw.lua
-- include share.lua
-- include hand_over.lua

local held = holder == owner
if shared then
	held = shares(KEYS[5], owner)
	redis.call('ZREM', KEYS[5], owner)
	holder = settle(KEYS[1], KEYS[5])
	shared = holder ~= nil
end
if held then
	if not hand_over(shared) and not shared then
		redis.call('DEL', KEYS[1])
	end
	return untold + 1
end

redis.call('HDEL', KEYS[3], owner)
local ends = redis.call('ZSCORE', KEYS[2], '<' .. owner)
redis.call('ZREM', KEYS[2], '>' .. owner, '<' .. owner)
if shared or not holder then
	hand_over(shared)
end
-- A waiter that was not present any more had lost its place already.
return untold + (ends and -ends > now and 2 or 0)
