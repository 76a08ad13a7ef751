-- Ends a hold, and wakes those who wait for it, as RLock's unlock does.
--
-- KEYS  lock, channel, the owner's last late request
-- ARGV  owner, which client sends this request, and its number there; if earlier requests of the client may still
--       arrive, also the number of the last of them, and for how many ms that is remembered
-- Gives 1 if the owner held the lock, else 0; and 4 more if the server could not remember the number that it was
-- told.

local untold = 0
local late = redis.pcall('GET', KEYS[3])
local client, last = string.match(type(late) == 'string' and late or '', '^(%S+) (%d+)$')
if client == ARGV[2] and tonumber(ARGV[3]) <= tonumber(last) then
	return 0 -- the owner has asked again before this request arrived
end
if ARGV[4] and redis.pcall('SET', KEYS[3], ARGV[2] .. ' ' .. ARGV[4], 'PX', ARGV[5]).err then
	untold = 4 -- a server that is out of memory refuses this, but must still release
end
if redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then
	return untold
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], '0')
return untold + 1
