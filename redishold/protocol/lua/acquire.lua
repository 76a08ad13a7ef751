-- Grants the lock if it is free, if the owner has it already, or if it is shared and asked for as shared.
-- Otherwise tells who holds it and, if asked to, queues the owner.
--
-- KEYS  lock, queue, waiters, fence, readers; also the owner's last late request, over connections on which one
--       request may overtake another
-- ARGV  owner, TTL in ms, first token, last token, presence in ms, ticket ('' not to queue, '0' for the order
--       of arrival), route of notices, '1' if the owner has just set the lock and then seen that somebody waits,
--       '1' to share the lock; with the last key also which client sends this request, and its number there; and,
--       if earlier requests of the client may still arrive, the number of the last of them, and for how many ms
--       that is remembered
-- Gives the first token granted; or {holder, what remains of its TTL in ms, place in the queue or 0, server's
-- clock in us if the owner is queued, else 0}.

local owner, ttl, together = ARGV[1], ARGV[2], ARGV[9] == '1'

if KEYS[6] then
	local client, last = string.match(redis.call('GET', KEYS[6]) or '', '^(%S+) (%d+)$')
	if client == ARGV[10] and tonumber(ARGV[11]) <= tonumber(last) then
		return { '', 0, 0, 0 } -- a later request has arrived before this one: nobody waits for the answer
	end
	if ARGV[12] then
		redis.call('SET', KEYS[6], ARGV[10] .. ' ' .. ARGV[12], 'PX', ARGV[13])
	end
end

local holder = redis.pcall('GETRANGE', KEYS[1], '0', '1024') -- a byte more than an owner value has
if type(holder) == 'table' then
	-- A key of another type, from another program. Nothing has changed yet; after a later error something may.
	return redis.error_reply('NOTALOCK ' .. holder.err)
end
if holder == '' and redis.call('EXISTS', KEYS[1]) == 0 then
	holder = nil
end

local shared = holder == 'holdfast:shared'
if shared or not holder or holder == owner then
	-- include draw.lua
	if not shared and not together then
		if holder and ARGV[8] == '' then
			redis.call('PEXPIRE', KEYS[1], ttl)
			return draw(ARGV[3], ARGV[4])
		end
		if redis.call('EXISTS', KEYS[2]) == 0 then
			redis.call('SET', KEYS[1], owner, 'PX', ttl)
			return draw(ARGV[3], ARGV[4])
		end
	end

	-- include clock.lua
	-- include share.lua
	-- include hand_over.lua
	if shared then
		holder = longest(KEYS[5])
		shared = holder ~= nil
	end
	local mine = shared and shares(KEYS[5], owner)
	if together then
		local turn = mine or holder == owner
		if not turn then
			-- Waiters come first, but an owner that shares takes nothing from them.
			local heir
			heir, turn, shared = hand_over(shared, owner, true)
			holder = heir or holder
		end
		if not turn and shared and (tonumber(ARGV[6]) or 0) > 0 and not redis.call('ZSCORE', KEYS[2], '>' .. owner) then
			-- Its ticket may be earlier than theirs.
			local first = redis.call('ZRANGEBYSCORE', KEYS[2], '0', '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
			local ticket, other = tonumber(ARGV[6]), tonumber(first[2])
			turn = ticket < other or ticket == other and '>' .. owner < first[1]
		end
		if turn and shared then
			extend(KEYS[1], KEYS[5], owner, now + ttl)
			return draw(ARGV[3], ARGV[4])
		elseif turn then
			found(KEYS[1], KEYS[5], owner, now + ttl)
			hand_over(true)
			return draw(ARGV[3], ARGV[4])
		end
	elseif mine then
		return { holder, redis.call('PTTL', KEYS[1]), 0, 0 } -- it shares for good, and must not wait for itself
	elseif not shared then
		-- Waiters come first. The key is free although somebody waits only if the last lease ran out, or another
		-- library freed the key. Then nobody was told.
		holder = hand_over(false, owner)
		if not holder then
			redis.call('SET', KEYS[1], owner, 'PX', ttl)
			return draw(ARGV[3], ARGV[4])
		end
	end
end

local place, clock = 0, 0
if ARGV[6] ~= '' or redis.call('ZSCORE', KEYS[2], '>' .. owner) then
	-- include clock.lua
	-- include attend.lua
	clock = time[1] * 1000000 + time[2]
end
return { holder, redis.call('PTTL', KEYS[1]), place, clock }
