-- Renews one lease like renew.lua, also for an owner that shares the lock. If asked to, it draws fresh tokens and
-- tells whether somebody waits, or it makes a lock that the owner holds alone shared.
--
-- KEYS  lock, queue, waiters, fence, readers
-- ARGV  owner, TTL in ms, first token and last token ('' for none), '1' to share
-- Gives 0 if the lock is lost, 1 if no tokens were asked for, else the first token drawn: negated if somebody waits.

local owner, ttl, first = ARGV[1], ARGV[2], ARGV[3]
local holder = redis.call('GETRANGE', KEYS[1], '0', '1024') -- a byte more than an owner value has
local alone, waiting = holder == owner, false
if not alone and holder ~= 'holdfast:shared' then
	return 0
end

-- include draw.lua

if not alone or ARGV[5] == '1' or first ~= '' and redis.call('EXISTS', KEYS[2]) == 1 then
	-- include clock.lua
	-- include share.lua
	-- include hand_over.lua
	if not alone and not shares(KEYS[5], owner) then
		return 0
	end
	if not alone or ARGV[5] == '1' then
		redis.call('PEXPIRE', KEYS[1], ttl) -- a server that is out of memory refuses nothing behind this
		local share = alone and found or extend
		share(KEYS[1], KEYS[5], owner, now + ttl)
		hand_over(true) -- those whose turn it is, now or as one before them has died
		alone = false
	end
	waiting = redis.call('ZCOUNT', KEYS[2], '-inf', '(-' .. now) > 0 -- ends of presences that are to come
end

if alone then
	redis.call('PEXPIRE', KEYS[1], ttl)
end
if first == '' then
	return 1
end
local token = draw(first, ARGV[4])
return waiting and -token or token
