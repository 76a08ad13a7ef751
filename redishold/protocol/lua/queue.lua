-- The queue, KEYS[2], has two members for each waiter: '>' and its owner value, scored by its ticket, and '<' and its owner
-- value, scored by when its presence ends, less 2^52 so that all of these sort before all tickets. What else is to
-- be known is in the waiters, KEYS[3]: the end of the presence, first and last token wanted, and the route of notices.

local EARLY = 4503599627370496 -- 2^52

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function whole(number) return string.format('%.0f', number) end

-- forget removes the waiter, and tells whether there was one.
local function forget(waiter)
	redis.call('HDEL', KEYS[3], waiter)
	return redis.call('ZREM', KEYS[2], '>' .. waiter, '<' .. waiter) > 0
end

-- The dead go first, wherever they stand: no handoff reaches them, and nobody counts them.
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], -EARLY, whole(now - EARLY))) do
	forget(string.sub(member, 2))
end

-- hand_over gives the lock, KEYS[1], to the first waiter for what remains of its presence, and tells it. It
-- gives the owner value of that waiter; or nothing, if nobody waits or the first is the one that asks.
local function hand_over(asking)
	local first = redis.call('ZRANGEBYSCORE', KEYS[2], 0, '+inf', 'LIMIT', 0, 1)[1]
	if not first then
		return nil
	end
	local heir = string.sub(first, 2)
	local note = redis.call('HGET', KEYS[3], heir)
	forget(heir)
	if heir == asking then
		return nil
	end
	if not note then
		return hand_over(asking) -- somebody removed the note by hand
	end
	local ends, from, to, route = string.match(note, '^(%d+) (%d+) (%d+) (.*)$')
	redis.call('SET', KEYS[1], heir, 'PX', whole(ends - now))
	local token = whole(draw(from, to))
	if route ~= '' then
		-- Last, and not allowed to fail: what is not heard is found by the next heartbeat.
		local command = string.sub(route, 1, 1) == 'S' and 'SPUBLISH' or 'PUBLISH'
		redis.pcall(command, string.sub(route, 2),
			token .. ' ' .. whole(to - from + 1) .. ' ' .. #heir .. ' ' .. heir .. KEYS[1])
	end
	return heir
end

-- attend queues the waiter or, if it is queued, has it stay present. It gives its place, 1 being next.
local function attend(waiter, presence, ticket, from, to, route)
	local ends = now + presence
	local spot = '>' .. waiter
	if redis.call('ZADD', KEYS[2], whole(ends - EARLY), '<' .. waiter) == 1 then
		if ticket == '0' then
			ticket = whole(time[1] * 1000000 + time[2])
		end
		redis.call('ZADD', KEYS[2], ticket, spot)
	end
	redis.call('HSET', KEYS[3], waiter, whole(ends) .. ' ' .. from .. ' ' .. to .. ' ' .. route)
	-- Longer than any presence, so that the keys go with the last waiter.
	redis.call('PEXPIRE', KEYS[2], 4000)
	redis.call('PEXPIRE', KEYS[3], 4000)
	return redis.call('ZCOUNT', KEYS[2], 0, '+inf') - redis.call('ZREVRANK', KEYS[2], spot)
end
