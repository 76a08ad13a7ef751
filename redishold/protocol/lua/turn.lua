-- Renews one lease like renew.lua, but gives way to a waiter if asked to, and draws fresh tokens if asked to.
--
-- KEYS  lock, queue, waiters, fence
-- ARGV  owner, TTL in ms, first token and last token ('' for none), '1' to give way
-- Gives 0 if the lock is lost, -1 if it was handed over, else the first token drawn, or 1 if none was to be.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
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
