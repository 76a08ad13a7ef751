/*
 * A wall clock of its own for one process: preloaded into a redis-server, it makes every reading go at another rate and be
 * off by some step, as the file named by ITEST_CLOCK says. Redis counts expiry by gettimeofday. The monotonic clock is left
 * alone, as a real clock step leaves it.
 *
 * The file holds seven numbers: a count of changes; then, for changes with an even count and for those with an odd one, the
 * step in microseconds and the rate in millionths more or less, with the time from which on the rate counts. So a change
 * is seen as a whole or not at all.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct setting { long long step, rate, since; };
struct page { long long changes; struct setting settings[2]; };
static volatile struct page *page;

__attribute__((constructor)) static void attach(void) {
	const char *path = getenv("ITEST_CLOCK");
	int file = path ? open(path, O_RDONLY) : -1;
	if (file >= 0) {
		void *mapped = mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, file, 0);
		if (mapped != MAP_FAILED) page = mapped;
		close(file);
	}
}

/* The system call itself: no allocation, no lock, so it works at any moment of the process's life. */
static long long now(void) {
	struct timespec t;
	syscall(SYS_clock_gettime, CLOCK_REALTIME, &t);
	long long us = t.tv_sec * 1000000LL + t.tv_nsec / 1000;
	if (!page) return us;
	for (;;) {
		long long changes = page->changes;
		volatile struct setting *s = &page->settings[changes & 1];
		long long shown = us + s->step + (us - s->since) * s->rate / 1000000;
		if (page->changes == changes) return shown;
	}
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
