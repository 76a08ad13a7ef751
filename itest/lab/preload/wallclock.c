/*
 * A wall clock that can be set for one process alone: preloaded into a redis-server, it adds to every reading the
 * microseconds that are in the file named by ITEST_CLOCK. Redis counts expiry by gettimeofday. The monotonic clock is left
 * alone, as a real clock step leaves it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *step;

__attribute__((constructor)) static void attach(void) {
	const char *path = getenv("ITEST_CLOCK");
	int file = path ? open(path, O_RDONLY) : -1;
	if (file >= 0) {
		void *page = mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, file, 0);
		if (page != MAP_FAILED) step = page;
		close(file);
	}
}

/* The system call itself: no allocation, no lock, so it works at any moment of the process's life. */
static long long now(void) {
	struct timespec t;
	syscall(SYS_clock_gettime, CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000LL + t.tv_nsec / 1000 + (step ? *step : 0);
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	long long us = now();
	(void)zone;
	if (t) {
		t->tv_sec = us / 1000000;
		t->tv_usec = us % 1000000;
	}
	return 0;
}

int clock_gettime(clockid_t id, struct timespec *t) {
	if (id != CLOCK_REALTIME) return syscall(SYS_clock_gettime, id, t);
	long long us = now();
	t->tv_sec = us / 1000000;
	t->tv_nsec = us % 1000000 * 1000;
	return 0;
}

time_t time(time_t *t) {
	time_t s = now() / 1000000;
	if (t) *t = s;
	return s;
}
