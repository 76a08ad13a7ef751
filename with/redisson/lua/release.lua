-- Ends a hold, and wakes those who wait for it, as RLock's unlock does.
--
-- KEYS  lock, channel, the owner's last late request
-- ARGV  owner, the number of this request; if earlier requests may still arrive, also the number of the last of
--       them, and for how many ms that is remembered
-- Gives 1 if the owner held the lock, else 0.

local late = redis.pcall('GET', KEYS[3])
if type(late) == 'string' and tonumber(ARGV[2]) <= (tonumber(late) or 0) then
	return 0 -- the owner has asked again before this request arrived
end
if ARGV[3] then
	redis.pcall('SET', KEYS[3], ARGV[3], 'PX', ARGV[4]) -- a server that is out of memory refuses this, but must still release
end
if redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then
	return 0
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], '0')
return 1
