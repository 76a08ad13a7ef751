-- draw takes tokens from the fence, KEYS[4]: those from first to last or, if one at or over first was granted
-- before, as many above the largest. It gives the first of them.
--
-- The fence is a sorted set with one member. With GT the score only rises, whatever else goes wrong, and the
-- usual case is one command. Both ends are added: if the first one raises the score, the whole block is new. The
-- score is exact below 2^53, which is checked before a claim is sent.
local function draw(first, last)
	local raised = redis.call('ZADD', KEYS[4], 'GT', 'CH', first, 't', last, 't')
	if raised == 2 or (raised == 1 and first == last) then
		return tonumber(first)
	end
	local fresh = redis.call('ZSCORE', KEYS[4], 't') + 1
	redis.call('ZADD', KEYS[4], string.format('%.0f', fresh + (last - first)), 't')
	return fresh
end
