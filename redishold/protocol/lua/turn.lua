-- Renews one lease like renew.lua. If asked to, it yields to a waiter, or draws fresh tokens.
--
-- KEYS  lock, queue, waiters, fence
-- ARGV  owner, TTL in ms, first token and last token ('' for none), '1' to yield
-- Gives 0 if the lock is lost, -1 if it was handed over, else the first token drawn, or 1 if none was asked for.

if redis.call('GETRANGE', KEYS[1], '0', '1023') ~= ARGV[1] then -- no owner value is longer
	return 0
end

-- include draw.lua

if ARGV[5] == '1' and redis.call('EXISTS', KEYS[2]) == 1 then
	-- include clock.lua
	-- include hand_over.lua
	if hand_over() then
		return -1
	end
end

redis.call('PEXPIRE', KEYS[1], ARGV[2])
if ARGV[3] == '' then
	return 1
end
return draw(ARGV[3], ARGV[4])
