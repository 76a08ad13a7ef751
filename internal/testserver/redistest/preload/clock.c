// Shifts the wall clock by the microseconds in the file that REDISTEST_CLOCK names. If there are others behind, it
// stands still at those since 1970, shifted, but for a microsecond with each reading: no two show the same. The
// monotonic clock is left alone.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset; // and when it stands still

__attribute__((constructor)) static void map_offset(void) {
	const char *path = getenv("REDISTEST_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		_exit(99); // better no server than one by another clock than the test believes
	void *p = mmap(NULL, 2 * sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		_exit(99);
	close(fd);
	offset = p;
}

// Straight from the kernel: looking the C library's function up allocates memory, and the allocator asks for the time.
static int shifted(clockid_t id, struct timespec *ts) {
	int r = syscall(SYS_clock_gettime, id, ts);
	if (r == 0 && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		int64_t still = offset[1];
		if (still) {
			static int64_t readings;
			still += __atomic_add_fetch(&readings, 1, __ATOMIC_RELAXED);
			ts->tv_sec = still / 1000000;
			ts->tv_nsec = still % 1000000 * 1000;
		}
		int64_t us = *offset, ns = ts->tv_nsec + us % 1000000 * 1000;
		ts->tv_sec += us / 1000000 + (ns >= 1000000000) - (ns < 0);
		ts->tv_nsec = ns + (ns < 0 ? 1000000000 : ns >= 1000000000 ? -1000000000 : 0);
	}
	return r;
}

int clock_gettime(clockid_t id, struct timespec *ts) { return shifted(id, ts); }

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
	struct timespec ts;
	(void)tz;
	if (shifted(CLOCK_REALTIME, &ts) != 0)
		return -1;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec ts;
	if (shifted(CLOCK_REALTIME, &ts) != 0)
		return -1;
	if (t)
		*t = ts.tv_sec;
	return ts.tv_sec;
}
