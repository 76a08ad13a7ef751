-- hand_over lets in the waiters whose turn it is, for what remains of their presence, and tells them: the first live
-- waiter or, if that one shares, all that share up to the first live one that does not. If the lock is shared
-- already, it lets in only waiters that share. The asker, if there is one, is only taken out of the queue; the
-- caller gives it the lock. together says whether the asker would share.
--
-- It returns the owner value of the holder, if somebody was let in; whether the asker's turn has come, as it does
-- at the end of the queue too; and whether the lock is shared then.
local function hand_over(shared, asker, together)
	local holder, turn
	while true do
		local first = redis.call('ZRANGEBYSCORE', KEYS[2], '0', '+inf', 'LIMIT', '0', '1')[1]
		if not first then
			return holder, true, shared
		end
		local heir = string.sub(first, 2)
		local note = redis.call('HGET', KEYS[3], heir) or '' -- nothing, if somebody removed it by hand
		local ends, from, to, sharing, route = string.match(note, '^(%d+) (%d+) (%d+) (%+?)(.*)$')
		local live, asking = ends and ends - now > 0, heir == asker
		if asking then
			live, sharing = true, together and '+' or ''
		end
		if live and sharing == '' and (shared or turn) then
			return holder, turn, shared
		end
		redis.call('HDEL', KEYS[3], heir)
		redis.call('ZREM', KEYS[2], first, '<' .. heir)
		if asking then
			turn = true
			if not together then
				return nil, true
			end
		elseif live then
			if sharing == '' then
				redis.call('SET', KEYS[1], heir, 'PX', ends - now)
				holder = heir
			else
				holder = (shared and extend or found)(KEYS[1], KEYS[5], heir, ends)
				shared = true
			end
			local token = string.format('%.0f', draw(from, to))
			if route ~= '' then
				-- Last, and it must not fail the script: if the notice is lost, the next heartbeat finds the grant.
				local command = string.sub(route, 1, 1) == 'S' and 'SPUBLISH' or 'PUBLISH'
				redis.pcall(command, string.sub(route, 2),
					token .. ' ' .. to - from + 1 .. ' ' .. #heir .. ' ' .. heir .. KEYS[1])
			end
			if sharing == '' then
				return holder, false
			end
		end
	end
end
