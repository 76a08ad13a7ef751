-- Renews one lease like renew.lua, also of one who shares the lock. If asked to, it yields to a waiter, draws fresh
-- tokens, or shares from now on what the owner holds alone.
--
-- KEYS  lock, queue, waiters, fence, readers
-- ARGV  owner, TTL in ms, first token and last token ('' for none), '1' to yield, '1' to share
-- Gives 0 if the lock is lost, -1 if it was handed over, else the first token drawn, or 1 if none was asked for.

local owner, ttl = ARGV[1], ARGV[2]
local holder = redis.call('GETRANGE', KEYS[1], '0', '1023') -- no owner value is longer
local alone, yield = holder == owner, ARGV[5] == '1'
if not alone and holder ~= 'holdfast:shared' then
	return 0
end

-- include draw.lua

if not alone or ARGV[6] == '1' or yield and redis.call('EXISTS', KEYS[2]) == 1 then
	-- include clock.lua
	-- include share.lua
	-- include hand_over.lua
	if not alone and not shares(KEYS[5], owner) then
		return 0
	end
	if yield and alone and hand_over(false) then
		return -1
	end
	if yield and not alone then
		local _, nobody = hand_over(true)
		if not nobody then
			redis.call('ZREM', KEYS[5], owner)
			if not settle(KEYS[1], KEYS[5]) then
				hand_over(false)
			end
			return -1
		end
	end
	if not alone or ARGV[6] == '1' then
		redis.call('PEXPIRE', KEYS[1], ttl) -- a server that is out of memory refuses nothing behind this
		local share = alone and found or extend
		share(KEYS[1], KEYS[5], owner, now + ttl)
		hand_over(true) -- those whose turn it is, now or as one before them has died
		alone = false
	end
end

if alone then
	redis.call('PEXPIRE', KEYS[1], ttl)
end
if ARGV[3] == '' then
	return 1
end
return draw(ARGV[3], ARGV[4])
