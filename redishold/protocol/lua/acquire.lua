-- Grants the lock if it is free or the owner's own. Otherwise tells who holds it and, if asked to, queues the
-- owner.
--
-- KEYS  lock, queue, waiters, fence; over connections that may let one request overtake another, the owner's
--       end as well
-- ARGV  owner, TTL in ms, first token, last token, presence in ms, ticket ('' not to queue, '0' for the order
--       of arrival), route of notices, '1' if the owner has just set the lock and then seen that somebody waits
-- Gives the first token granted; or {holder, what remains of its TTL in ms, place in the queue or 0, server's
-- clock in us if the owner is queued, else 0}.

local owner, ttl = ARGV[1], ARGV[2]

if KEYS[5] and redis.call('EXISTS', KEYS[5]) == 1 then
	return { '', 0, 0, 0 } -- released before this request arrived: nobody waits for the answer
end

local holder = redis.pcall('GETRANGE', KEYS[1], '0', '1023') -- no owner value is longer, but another's value may be
if type(holder) == 'table' then
	-- Somebody else's key of another type. Nothing was changed yet; after a later error something may be.
	return redis.error_reply('NOTALOCK ' .. holder.err)
end
if holder == '' and redis.call('EXISTS', KEYS[1]) == 0 then
	holder = nil
end

if not holder or holder == owner then
	-- include draw.lua
	if holder and ARGV[8] == '' then
		redis.call('PEXPIRE', KEYS[1], ttl)
		return draw(ARGV[3], ARGV[4])
	end
	if redis.call('EXISTS', KEYS[2]) == 0 then
		redis.call('SET', KEYS[1], owner, 'PX', ttl)
		return draw(ARGV[3], ARGV[4])
	end

	-- include clock.lua
	-- include hand_over.lua
	-- Waiters come first. The key is free with waiters only if the last lease ran out, or another library
	-- freed the key: then nobody was told.
	holder = hand_over(owner)
	if not holder then
		redis.call('SET', KEYS[1], owner, 'PX', ttl)
		return draw(ARGV[3], ARGV[4])
	end
end

local place, clock = 0, 0
if ARGV[6] ~= '' or redis.call('ZSCORE', KEYS[2], '>' .. owner) then
	-- include clock.lua
	-- include attend.lua
	clock = time[1] * 1000000 + time[2]
end
return { holder, redis.call('PTTL', KEYS[1]), place, clock }
