-- Ends a hold, and wakes those who wait for it, as RLock's unlock does.
--
-- KEYS  lock, channel, the owner's end
-- ARGV  owner, for how many ms its end is remembered (0: not)
-- Gives 1 if the owner held the lock, else 0.

if ARGV[2] ~= '0' then
	redis.pcall('SET', KEYS[3], '', 'PX', ARGV[2]) -- a server that is out of memory refuses this, but must still release
end
if redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then
	return 0
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], '0')
return 1
