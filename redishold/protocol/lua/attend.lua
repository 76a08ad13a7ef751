-- The owner is queued or, if it is queued already, stays present. Its place is the one among the live, 1
-- being next.

local ends, spot = '' .. now + ARGV[5], '>' .. owner
local ticket = ARGV[6]
if ticket == '' or ticket == '0' then
	ticket = string.format('%.0f', time[1] * 1000000 + time[2])
end
local new = redis.call('ZADD', KEYS[2], 'NX', '-' .. ends, '<' .. owner, ticket, spot) > 0
local waiting = redis.call('ZCOUNT', KEYS[2], '-inf', '(0')
if waiting > 1 then
	-- The dead are removed, wherever they stand. One that comes back queues anew.
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
redis.call('HSET', KEYS[3], owner, ends .. ' ' .. ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. ARGV[7])
if waiting == 1 or now % 8000 < 1500 then
	-- The keys outlive the last waiter, but not for long. Heartbeats are about a second apart, so whoever waits
	-- all through the interval, which comes every 8 s, hits it, as does whoever comes in it.
	redis.call('PEXPIRE', KEYS[2], '20000')
	redis.call('PEXPIRE', KEYS[3], '20000')
end
place = 1
if waiting > 1 then
	place = waiting - redis.call('ZREVRANK', KEYS[2], spot)
end
