-- A lock that several share has a value of its own, which is not an owner value. The readers are a sorted set
-- beside it: owner values, each scored by the end of its lease in ms, negated, so that the longest comes first. The
-- lock's own TTL ends with the longest. Readers beside a lock with any other value, or with none, are left over and
-- do not count: the script that makes a lock shared removes them.

-- longest returns the reader with the longest lease, and the end of that, if any lease has not ended.
local function longest(readers)
	local first = redis.call('ZRANGEBYSCORE', readers, '-inf', '-' .. now, 'WITHSCORES', 'LIMIT', '0', '1')
	return first[1], first[2] and string.sub(first[2], 2)
end

-- shares reports whether the owner is among the readers, with a lease that has not ended.
local function shares(readers, owner)
	local ends = redis.call('ZSCORE', readers, owner)
	return ends and -ends >= now
end

-- settle gives the lock the longest lease that is left, and forgets those that have ended. It returns the owner of
-- that lease. If none is left, it returns nothing and leaves the lock as it is.
local function settle(lock, readers)
	for _, dead in ipairs(redis.call('ZRANGEBYSCORE', readers, '(-' .. now, '+inf')) do
		redis.call('ZREM', readers, dead)
	end
	local reader, ends = longest(readers)
	if reader then
		redis.call('SET', lock, 'holdfast:shared', 'PXAT', ends) -- not PEXPIRE, whose clock may be behind now
		redis.call('PEXPIRE', readers, ends - now + 1000) -- not before the lock
	end
	return reader
end

-- extend gives a reader a lease until then, or lets one in.
local function extend(lock, readers, reader, ends)
	redis.call('ZADD', readers, '-' .. ends, reader)
	return settle(lock, readers)
end

-- found makes the lock shared, by this reader alone.
local function found(lock, readers, reader, ends)
	-- First, because a server that is out of memory refuses this, but nothing that follows a write.
	redis.call('SET', lock, 'holdfast:shared', 'PXAT', ends)
	local former = redis.pcall('ZRANGEBYSCORE', readers, '-inf', '+inf')
	if former.err then
		redis.call('DEL', readers) -- somebody else's key of another type
		former = {}
	end
	-- The set is not removed and made again: in a slot that is being moved, a script may not use a key that it has
	-- removed, and would end here.
	redis.call('ZADD', readers, '-' .. ends, reader)
	for _, other in ipairs(former) do
		if other ~= reader then
			redis.call('ZREM', readers, other)
		end
	end
	return settle(lock, readers)
end
