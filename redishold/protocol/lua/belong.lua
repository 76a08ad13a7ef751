-- Says which set of nodes the server belongs to, moves it to another one, and says how long it has had its data.
--
-- KEYS  the set; the memory, which is since when the server has had its data, in ms by its clock, and its
--       run_id and master_replid at that time, with spaces between them
-- ARGV  the set to move it from, and the set to move it to, each '' for none; '1' to ask for the memory
-- Gives {the set that it belongs to afterwards, for how many ms it has had its data or -1 if not asked, the
-- memory}.

local set = redis.call('GET', KEYS[1]) or ''
if set == ARGV[1] and set ~= ARGV[2] then
	if ARGV[2] == '' then
		redis.call('DEL', KEYS[1])
	else
		redis.call('SET', KEYS[1], ARGV[2])
	end
	set = ARGV[2]
end
if ARGV[3] ~= '1' then
	return { set, -1, '' }
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local server, replication = redis.call('INFO', 'server'), redis.call('INFO', 'replication')
local run = string.match(server, 'run_id:(%w+)')
local history = string.match(replication, 'master_replid:(%w+)')
local memory = redis.call('GET', KEYS[2]) or ''
local since, itsrun, itshistory = string.match(memory, '^(%d+) (%w+) (%w+)$')
since = tonumber(since)
if not since or since > now or itsrun ~= run or itshistory ~= history then
	-- One of these is so: nobody has asked before; the memory is lost; the clock was set back; the server was
	-- restarted, or has data of an earlier run or of another server, which look the same; it was a replica in
	-- this run.
	since = now
end
local text = string.format('%.0f', since) .. ' ' .. run .. ' ' .. history
if text ~= memory then
	redis.call('SET', KEYS[2], text)
end
return { set, now - since, text }
