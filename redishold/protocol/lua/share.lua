-- A lock that several share has a value of its own, which is no owner value. Who they are is in the readers,
-- KEYS[5]: owner values, each scored by the end of its lease in ms, negated, so that the longest comes first. The
-- lock's own TTL ends with the longest. Readers beside a lock with any other value, or with none, are a rest of
-- former times and count for nothing: whoever makes a lock shared removes them.

-- longest returns who of the readers has the longest lease, and the end of it, if any lease has not ended.
local function longest()
	local first = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', '-' .. now, 'WITHSCORES', 'LIMIT', '0', '1')
	return first[1], first[2] and string.sub(first[2], 2)
end

-- settle gives the lock the longest lease that is left, and forgets those that have ended. It returns whose it is,
-- or nothing and leaves the lock as it is.
local function settle()
	for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '(-' .. now, '+inf')) do
		redis.call('ZREM', KEYS[5], dead)
	end
	local reader, ends = longest()
	if reader then
		redis.call('SET', KEYS[1], 'holdfast:shared', 'PXAT', ends) -- not PEXPIRE, whose clock may be behind now
		redis.call('PEXPIRE', KEYS[5], ends - now + 1000) -- not before the lock
	end
	return reader
end

-- share has the reader hold the lock until then, with those who share it already; without any if it is founded.
local function share(reader, ends, founded)
	if founded then
		-- First, as a server that is out of memory refuses this. It refuses nothing behind a write.
		redis.call('SET', KEYS[1], 'holdfast:shared', 'PXAT', ends)
		redis.call('DEL', KEYS[5])
	end
	redis.call('ZADD', KEYS[5], '-' .. ends, reader)
	return settle()
end
