"""A process that locks with redis-py. See interop_test.go for what it reads and writes."""

import sys

import redis
from redis.exceptions import LockError

client = redis.Redis.from_url(sys.argv[1])
locks = {}

for line in sys.stdin:
    order, key, milliseconds = line.split()
    try:
        if order == "acquire":
            lock = client.lock(key, timeout=int(milliseconds) / 1000, blocking_timeout=0)
            answer = "yes" if lock.acquire(blocking=False) else "no"
            if answer == "yes":
                locks[key] = lock
        elif order == "extend":
            locks[key].extend(int(milliseconds) / 1000, replace_ttl=True)
            answer = "yes"
        elif order == "release":
            locks[key].release()
            answer = "yes"
    except LockError:
        answer = "no"
    print(answer, flush=True)
