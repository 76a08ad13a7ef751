-- The owner is queued or, if it is queued already, stays present. Its place is the one among the live, 1
-- being next.

-- First the dead are removed, wherever they stand.
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-' .. now, '(0')) do
	local dead = string.sub(member, 2)
	redis.call('HDEL', KEYS[3], dead)
	redis.call('ZREM', KEYS[2], member, '>' .. dead)
end

local ends, spot = '' .. now + ARGV[5], '>' .. owner
local new = redis.call('ZADD', KEYS[2], '-' .. ends, '<' .. owner) == 1
if new then
	local ticket = ARGV[6]
	if ticket == '0' then
		ticket = string.format('%.0f', time[1] * 1000000 + time[2])
	end
	redis.call('ZADD', KEYS[2], ticket, spot)
end
redis.call('HSET', KEYS[3], owner, ends .. ' ' .. ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. ARGV[7])
if new or now % 8000 < 1500 then
	-- The keys outlive the last waiter, but not for long. Heartbeats are about a second apart, so each live
	-- waiter hits the interval once in 8 s.
	redis.call('PEXPIRE', KEYS[2], '20000')
	redis.call('PEXPIRE', KEYS[3], '20000')
end
place = redis.call('ZCOUNT', KEYS[2], '0', '+inf') - redis.call('ZREVRANK', KEYS[2], spot)
