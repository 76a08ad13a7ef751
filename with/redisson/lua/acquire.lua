-- Grants the lock if it is free or the owner's own. Otherwise tells who holds it.
--
-- KEYS  lock, fence, the owner's last late request
-- ARGV  owner, TTL in ms, first token, how many tokens, which client sends this request, and its number there; if
--       earlier requests of the client may still arrive, also the number of the last of them, and for how many ms
--       that is remembered
-- Gives the first token granted; or {holder, what remains of its TTL in ms}.

local owner = ARGV[1]
local client, last = string.match(redis.call('GET', KEYS[3]) or '', '^(%S+) (%d+)$')
if client == ARGV[5] and tonumber(ARGV[6]) <= tonumber(last) then
	return { '', 0 } -- a later request has arrived before this one: nobody waits for the answer
end
if ARGV[7] then
	redis.call('SET', KEYS[3], ARGV[5] .. ' ' .. ARGV[7], 'PX', ARGV[8])
end

local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' or kind == 'hash' and redis.call('HEXISTS', KEYS[1], owner) == 1 then
	local drawn = tonumber(redis.call('ZSCORE', KEYS[2], 't') or '0')
	local token = math.max(drawn + 1, tonumber(ARGV[3]))
	redis.call('ZADD', KEYS[2], string.format('%.0f', token + tonumber(ARGV[4]) - 1), 't')
	-- This does nothing yet to a new lock. But if the user may not do it, the script ends here, and not when there
	-- is a lock without an end.
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
	-- The count of RLock. Asking again is no second acquisition.
	redis.call('HSET', KEYS[1], owner, '1')
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
	return token
end

local holder = ''
if kind == 'hash' then
	for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
		if field ~= 'mode' then -- of a read-write lock
			holder = field
			break
		end
	end
elseif kind == 'string' then
	holder = redis.call('GETRANGE', KEYS[1], '0', '1023') -- another library's lock
else
	return redis.error_reply('NOTALOCK the key is a ' .. kind)
end
return { holder, redis.call('PTTL', KEYS[1]) }
