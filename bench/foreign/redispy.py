"""A process that locks and unlocks with redis-py. See program.go for what it reads and writes."""

import json
import sys
import time

import redis

client = redis.Redis.from_url(sys.argv[1])


def pair(key):
    lock = client.lock(key, timeout=30)
    lock.acquire()
    lock.release()


def percentile(times, p):
    return sorted(times)[max(0, -int(-p * len(times) // 1) - 1)]


print("ready", flush=True)
for line in sys.stdin:
    order, key, number, concurrency = line.split()
    times = []
    start, cpu = time.perf_counter(), time.process_time()
    if order == "span":
        while time.perf_counter() - start < int(number) / 1000:
            begin = time.perf_counter()
            pair(key)
            times.append(time.perf_counter() - begin)
    else:
        for _ in range(int(number)):
            pair(key)
            times.append(0)
    print(
        json.dumps(
            {
                "pairs": len(times),
                "seconds": time.perf_counter() - start,
                "cpu": time.process_time() - cpu,
                "p50": percentile(times, 0.5),
                "p99": percentile(times, 0.99),
            }
        ),
        flush=True,
    )
