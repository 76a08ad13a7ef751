// A process that locks and unlocks with redlock and ioredis. See program.go for what it reads and writes.

import { createInterface } from 'node:readline'
import Redis from 'ioredis'
import Redlock from 'redlock'

const client = new Redis(process.argv[2], { enableAutoPipelining: true })
const redlock = new Redlock([client])

const pair = async (key) => {
	const lock = await redlock.acquire([key], 30000)
	await lock.release()
}

const percentile = (times, p) => times.sort((a, b) => a - b)[Math.max(0, Math.ceil(p * times.length) - 1)]

console.log('ready')
for await (const line of createInterface({ input: process.stdin })) {
	const [order, key, number, concurrency] = line.split(' ')
	const times = []
	const start = performance.now()
	const used = process.cpuUsage()
	await Promise.all(Array.from({ length: Number(concurrency) }, async (_, i) => {
		const mine = `${key}/${i}`
		if (order === 'span') {
			while (performance.now() - start < Number(number)) {
				const begin = performance.now()
				await pair(mine)
				times.push((performance.now() - begin) / 1000)
			}
		} else {
			for (let n = 0; n < Number(number); n++) {
				await pair(mine)
				times.push(0)
			}
		}
	}))
	const cpu = process.cpuUsage(used)
	console.log(JSON.stringify({
		pairs: times.length,
		seconds: (performance.now() - start) / 1000,
		cpu: (cpu.user + cpu.system) / 1e6,
		p50: percentile(times, 0.5),
		p99: percentile(times, 0.99),
	}))
}
client.disconnect()
