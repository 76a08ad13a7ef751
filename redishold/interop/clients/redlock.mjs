// A process that locks with redlock and ioredis. See interop_test.go for what it reads and writes.

import { createInterface } from 'node:readline'
import Redis from 'ioredis'
import Redlock, { ExecutionError, ResourceLockedError } from 'redlock'

const client = new Redis(process.argv[2])
const redlock = new Redlock([client], { retryCount: 0 })
const locks = new Map()

for await (const line of createInterface({ input: process.stdin })) {
	const [order, key, milliseconds] = line.split(' ')
	let answer = 'yes'
	try {
		switch (order) {
		case 'acquire':
			locks.set(key, await redlock.acquire([key], Number(milliseconds)))
			break
		case 'extend':
			locks.set(key, await locks.get(key).extend(Number(milliseconds)))
			break
		case 'release':
			await locks.get(key).release()
			break
		}
	} catch (error) {
		if (!(error instanceof ExecutionError) && !(error instanceof ResourceLockedError)) {
			throw error
		}
		answer = 'no'
	}
	console.log(answer)
}
client.disconnect()
