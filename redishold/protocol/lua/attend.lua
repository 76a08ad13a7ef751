-- Queues the owner or, if it is queued already, keeps it present. Its place counts live waiters only, 1 being
-- next.

local ends, spot = '' .. now + ARGV[5], '>' .. owner
local ticket = ARGV[6]
if ticket == '' or ticket == '0' then
	ticket = string.format('%.0f', time[1] * 1000000 + time[2])
	if redis.call('ZCOUNT', KEYS[2], ticket, '+inf') > 0 then
		-- The clock was set back, or tickets come from clocks that are ahead, or this very microsecond is taken.
		local later = redis.call('ZRANGEBYSCORE', KEYS[2], ticket, '+inf', 'WITHSCORES')
		ticket = string.format('%.0f', later[#later] + 1)
	end
end
local new = redis.call('ZADD', KEYS[2], 'NX', '-' .. ends, '<' .. owner, ticket, spot) > 0
local waiting = redis.call('ZCOUNT', KEYS[2], '-inf', '(0')
if waiting > 1 then
	-- Remove the dead, wherever they stand. An owner that comes back queues anew.
	for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-' .. now, '(0')) do
		local dead = string.sub(member, 2)
		redis.call('HDEL', KEYS[3], dead)
		redis.call('ZREM', KEYS[2], member, '>' .. dead)
		waiting = waiting - 1
		if dead == owner then
			new = true
			redis.call('ZADD', KEYS[2], '-' .. ends, '<' .. owner, ticket, spot)
			waiting = waiting + 1
		end
	end
end
if not new then
	redis.call('ZADD', KEYS[2], '-' .. ends, '<' .. owner)
end
redis.call('HSET', KEYS[3], owner,
	ends .. ' ' .. ARGV[3] .. ' ' .. ARGV[4] .. (together and ' +' or ' ') .. ARGV[7])
if waiting == 1 or now % 8000 < 1500 then
	-- The keys must outlive the last waiter, but not for long. To set their TTL with every heartbeat would cost
	-- more, so only heartbeats in 1.5 s of every 8 s do. They are about a second apart, so no waiter misses it.
	redis.call('PEXPIRE', KEYS[2], '20000')
	redis.call('PEXPIRE', KEYS[3], '20000')
end
place = 1
if waiting > 1 then
	place = waiting - redis.call('ZREVRANK', KEYS[2], spot)
end
