-- The queue, KEYS[2], has two members for each waiter: '>' and its owner value, scored by its ticket, and '<'
-- and its owner value, scored by the end of its presence, in ms and negated. Tickets are never negative, so all
-- of these sort before all tickets. The rest is in the waiters, KEYS[3]: the end of the presence, the first and
-- the last token wanted, and the route of notices, with + before it for a waiter that would share.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) -- 13 digits: a number that .. keeps exact, unlike a token
