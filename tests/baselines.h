/* What tests/shuffle_baselines.c and tests/flow_baselines.c share: the tuples of the benchmarks, and
 * the measure. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COMPUTE_BYTES = 32 * 1024 };

typedef struct {
    uint64_t count, sum;
} Total;

typedef struct {
    double seconds;
    Total sent, received;
} Report;

static int processes, me;
static double compute_seconds;

static void fail(const char *what) {
    fprintf(stderr, "error: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *memory(size_t bytes) {
    void *found = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!found) fail("memory");
    memset(found, 0, bytes);
    return found;
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

/* --- tuples: as crates/lab/src/tuple.rs makes them --------------------------------------------------------------- */

static inline uint64_t key_of(uint64_t number) {
    uint64_t key = number * 0x9e3779b97f4a7c15u;
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
    return key ^ (key >> 31);
}

static inline uint64_t weight(uint64_t key, uint64_t value) {
    return key + 3 * value;
}

/* A tuple in a buffer, added to what was sent. */
static inline void append_to(unsigned char *at, uint64_t key, uint64_t value, Total *sent) {
    memcpy(at, &key, 8);
    memcpy(at + 8, &value, 8);
    sent->count++;
    sent->sum += weight(key, value);
}

static inline __attribute__((always_inline)) uint64_t sum_of(const unsigned char *bytes, size_t length, size_t tuple_bytes) {
    uint64_t total = 0;
    for (size_t at = 0; at < length; at += tuple_bytes) {
        uint64_t key, value;
        memcpy(&key, bytes + at, 8);
        memcpy(&value, bytes + at + 8, 8);
        total += weight(key, value);
    }
    return total;
}

/* Adds up what came, and computes for as long as that takes. */
static inline __attribute__((always_inline)) void take_all(const unsigned char *bytes, size_t length, size_t tuple_bytes,
                                                           Total *received) {
    double begin = now(), needed = compute_seconds * length / COMPUTE_BYTES;
    received->count += length / tuple_bytes;
    received->sum += sum_of(bytes, length, tuple_bytes);
    while (needed > 0 && now() - begin < needed) {
        volatile uint64_t unused = sum_of(bytes, length, tuple_bytes);
        (void)unused;
    }
}
