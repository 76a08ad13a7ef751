-- hand_over grants the lock, KEYS[1], to the first live waiter for what remains of its presence, and tells it.
-- It returns the owner value of that waiter; or nothing if nobody waits, or the first waiter is the asker.
local function hand_over(asking)
	while true do
		local first = redis.call('ZRANGEBYSCORE', KEYS[2], '0', '+inf', 'LIMIT', '0', '1')[1]
		if not first then
			return nil
		end
		local heir = string.sub(first, 2)
		local note = redis.call('HGET', KEYS[3], heir) or '' -- nothing, if somebody removed it by hand
		redis.call('HDEL', KEYS[3], heir)
		redis.call('ZREM', KEYS[2], first, '<' .. heir)
		if heir == asking then
			return nil
		end
		local ends, from, to, route = string.match(note, '^(%d+) (%d+) (%d+) (.*)$')
		if ends and ends - now > 0 then
			redis.call('SET', KEYS[1], heir, 'PX', ends - now)
			local token = string.format('%.0f', draw(from, to))
			if route ~= '' then
				-- Last, and it must not fail the script: the next heartbeat finds a grant that was not heard.
				local command = string.sub(route, 1, 1) == 'S' and 'SPUBLISH' or 'PUBLISH'
				redis.pcall(command, string.sub(route, 2),
					token .. ' ' .. to - from + 1 .. ' ' .. #heir .. ' ' .. heir .. KEYS[1])
			end
			return heir
		end
	end
end
