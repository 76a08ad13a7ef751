-- Renews locks, each only if it is still the owner's. A lock that is gone is never made again.
--
-- KEYS  for each: lock, fence, channel
-- ARGV  for each: owner, TTL in ms, first token, how many tokens (0 for none), how many of this process listen
-- Gives for each {1 or the first token, 1 if somebody else listens}, or {0, 0} if the lock is lost.

local answers = {}
for i = 1, #KEYS / 3 do
	local lock, fence, channel = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
	local owner, ttl, first, block, own = unpack(ARGV, 5 * i - 4, 5 * i)
	-- pcall: a key of another type must not spoil the others' renewal.
	if redis.pcall('HEXISTS', lock, owner) == 1 then
		redis.call('PEXPIRE', lock, ttl)
		local token, waiting = 1, 0
		if block ~= '0' then
			local drawn = tonumber(redis.call('ZSCORE', fence, 't') or '0')
			token = math.max(drawn + 1, tonumber(first))
			redis.call('ZADD', fence, string.format('%.0f', token + tonumber(block) - 1), 't')
			if redis.call('PUBSUB', 'NUMSUB', channel)[2] > tonumber(own) then
				waiting = 1
			end
		end
		answers[i] = { token, waiting }
	else
		answers[i] = { 0, 0 }
	end
end
return answers
