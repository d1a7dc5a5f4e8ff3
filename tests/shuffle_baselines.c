/* What tests/shuffle_baselines.py compares the shuffle operator with: the same tuples, moved by plain
 * sockets or by MPI, with the same check and the same measure.
 *
 *     shuffle_baselines unix|tcp PROCESSES TUPLES COMPUTE_US MESSAGE_BYTES BUFFERS keep|send
 *     mpirun -n PROCESSES shuffle_baselines alltoallv|isend …            (compiled with -DWITH_MPI)
 *
 * Every process makes TUPLES tuples of a key and a value and sends each to the process of its key's
 * hash, as crates/lab/src/shuffle/node.rs does. A process's own tuples are kept (taken from the
 * buffer that they were put in) or sent through the medium, too. Time is from a barrier until the
 * slowest process has sent and received everything. Prints a line of JSON.
 *
 * Sockets and isend have BUFFERS buffers of MESSAGE_BYTES for each peer and never wait: who has no
 * buffer receives. Alltoallv goes in rounds of MESSAGE_BYTES of each process's tuples.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

#include "baselines.h"

enum { TUPLE = 16, TURN = 4096, MESSAGES = 8, PEERS_MAX = 64, BUFFERS_MAX = 64 };

static int buffers;
static uint64_t tuples;
static size_t message_bytes;
static bool keep;
static Total sent, received;

/* --- tuples ------------------------------------------------------------------------------------------------------ */

static inline int destination(uint64_t key) {
    return (int)(((unsigned __int128)key * (unsigned)processes) >> 64);
}

static inline void append(unsigned char *at, uint64_t key, uint64_t value) {
    append_to(at, key, value, &sent);
}

static __attribute__((noinline)) void take(const unsigned char *bytes, size_t length) {
    take_all(bytes, length, TUPLE, &received);
}

/* --- sending and receiving by turns ------------------------------------------------------------------------------ */

/* How messages get to their destination. Nothing of it waits. */
typedef struct {
    /* A buffer to fill, or none. */
    unsigned char *(*acquire)(int to);
    void (*put)(int to, size_t length, bool last);
    /* Whether everything that was put has left. */
    bool (*finished)(void);
    /* Takes what has come. Whether all streams have ended. */
    bool (*receive)(void);
} Medium;

static struct {
    unsigned char *buffer;
    size_t filled;
    bool closed;
} outs[PEERS_MAX];
static unsigned char *own;
static uint64_t next_tuple, end_tuple;

static bool open_buffer(const Medium *medium, int to) {
    if (!outs[to].buffer) {
        outs[to].buffer = keep && to == me ? own : medium->acquire(to);
        outs[to].filled = 0;
    }
    return outs[to].buffer != NULL;
}

static void put(const Medium *medium, int to, bool last) {
    if (keep && to == me) {
        take(own, outs[to].filled);
    } else {
        medium->put(to, outs[to].filled, last);
    }
    outs[to].buffer = NULL;
    outs[to].closed = last;
}

/* Makes tuples, as far as there are buffers. */
static void make(const Medium *medium) {
    for (int i = 0; i < TURN && next_tuple < end_tuple; i++) {
        uint64_t key = key_of(next_tuple);
        int to = destination(key);
        if (!open_buffer(medium, to)) return;
        append(outs[to].buffer + outs[to].filled, key, next_tuple++);
        outs[to].filled += TUPLE;
        if (outs[to].filled == message_bytes) put(medium, to, false);
    }
}

/* Sends what is left, and ends the streams. Whether all are ended. */
static bool end_streams(const Medium *medium) {
    bool all = true;
    for (int to = 0; to < processes; to++) {
        if (!outs[to].closed && open_buffer(medium, to)) put(medium, to, true);
        all = all && outs[to].closed;
    }
    return all;
}

static void work(const Medium *medium) {
    bool ended = false, left = false;
    while (!left || !ended) {
        uint64_t before = next_tuple + received.count;
        if (next_tuple < end_tuple) {
            make(medium);
        } else if (!left) {
            left = end_streams(medium) && medium->finished();
        }
        if (!ended) ended = medium->receive();
        if (before == next_tuple + received.count) sched_yield();
    }
}

/* --- sockets ----------------------------------------------------------------------------------------------------- */

static struct {
    int fd;
    /* Buffers in a ring: put and not yet written. */
    unsigned char *buffers[BUFFERS_MAX];
    size_t lengths[BUFFERS_MAX], written;
    uint64_t put, gone;
    bool last, shut;
    /* What has come. */
    unsigned char *input;
    size_t rest;
    bool ended;
} links[PEERS_MAX];

/* A process that sends to itself has a socket for each direction. */
static int own_input = -1;

static void flush(int to) {
    while (links[to].gone < links[to].put) {
        int slot = links[to].gone % buffers;
        size_t left = links[to].lengths[slot] - links[to].written;
        ssize_t n = left ? write(links[to].fd, links[to].buffers[slot] + links[to].written, left) : 0;
        if (n < 0 && errno != EAGAIN && errno != EINTR) fail("write");
        if (n > 0) links[to].written += n;
        if (links[to].written < links[to].lengths[slot]) return;
        links[to].written = 0;
        links[to].gone++;
    }
    if (links[to].last && !links[to].shut) {
        if (shutdown(links[to].fd, SHUT_WR)) fail("shutdown");
        links[to].shut = true;
    }
}

static unsigned char *socket_acquire(int to) {
    flush(to);
    return links[to].put - links[to].gone < (uint64_t)buffers ? links[to].buffers[links[to].put % buffers] : NULL;
}

static void socket_put(int to, size_t length, bool last) {
    links[to].lengths[links[to].put++ % buffers] = length;
    links[to].last = last;
    flush(to);
}

static bool socket_finished(void) {
    bool all = true;
    for (int to = 0; to < processes; to++) {
        if (keep && to == me) continue;
        flush(to);
        all = all && links[to].shut;
    }
    return all;
}

static bool socket_receive(void) {
    bool all = true;
    for (int from = 0; from < processes; from++) {
        int fd = from == me ? own_input : links[from].fd;
        for (int i = 0; i < MESSAGES && !links[from].ended; i++) {
            ssize_t n = read(fd, links[from].input + links[from].rest, message_bytes - links[from].rest);
            if (n < 0 && errno != EAGAIN && errno != EINTR) fail("read");
            if (n < 0) break;
            size_t have = links[from].rest + n, whole = have / TUPLE * TUPLE;
            links[from].ended = n == 0;
            take(links[from].input, whole);
            memmove(links[from].input, links[from].input + whole, have - whole);
            links[from].rest = have - whole;
        }
        if (!links[from].ended) {
            flush(from);
            all = false;
        }
    }
    return all;
}

static const Medium sockets = {socket_acquire, socket_put, socket_finished, socket_receive};

/* Two ends of a connection. */
static void connect_pair(bool tcp, int ends[2]) {
    if (!tcp) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) fail("socketpair");
        return;
    }
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 1)) fail("listen");
    if (getsockname(listener, (struct sockaddr *)&at, &length)) fail("getsockname");
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (ends[0] < 0 || connect(ends[0], (struct sockaddr *)&at, sizeof at)) fail("connect");
    ends[1] = accept(listener, NULL, NULL);
    if (ends[1] < 0) fail("accept");
    close(listener);
    for (int i = 0; i < 2; i++) setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static int mesh[PEERS_MAX][PEERS_MAX];

static void socket_child(int control) {
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < processes; i++) {
        for (int j = 0; j < processes; j++) {
            if (i != me && j != me) close(mesh[i][j]);
            if (i != me && j == me && i != j) close(mesh[i][j]);
        }
        if (fcntl(mesh[me][i], F_SETFL, O_NONBLOCK)) fail("fcntl");
        links[i].fd = mesh[me][i];
        links[i].input = memory(message_bytes);
        links[i].ended = keep && i == me;
        for (int b = 0; b < buffers; b++) links[i].buffers[b] = memory(message_bytes);
    }
    if (own_input >= 0 && fcntl(own_input, F_SETFL, O_NONBLOCK)) fail("fcntl");
    char go = 'r';
    if (write(control, &go, 1) != 1 || read(control, &go, 1) != 1) fail("the start");
    double begin = now();
    work(&sockets);
    Report report = {now() - begin, sent, received};
    if (write(control, &report, sizeof report) != sizeof report) fail("the report");
    exit(0);
}

static Report over_sockets(bool tcp, double *setup) {
    double begin = now();
    int controls[PEERS_MAX], own_inputs[PEERS_MAX];
    for (int i = 0; i < processes; i++) {
        for (int j = i; j < processes; j++) {
            int ends[2];
            connect_pair(tcp, ends);
            mesh[i][j] = ends[0];
            mesh[j][i] = ends[i == j ? 0 : 1];
            if (i == j) own_inputs[i] = ends[1];
        }
    }
    for (int i = 0; i < processes; i++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) fail("socketpair");
        controls[i] = ends[0];
        pid_t child = fork();
        if (child < 0) fail("fork");
        if (child == 0) {
            close(ends[0]);
            for (int j = 0; j < i; j++) close(controls[j]);
            for (int j = 0; j < processes; j++) {
                if (j != i) close(own_inputs[j]);
            }
            me = i;
            own_input = own_inputs[i];
            next_tuple = i * tuples;
            end_tuple = next_tuple + tuples;
            own = memory(message_bytes);
            socket_child(ends[1]);
        }
        close(ends[1]);
    }
    for (int i = 0; i < processes; i++) {
        close(own_inputs[i]);
        for (int j = 0; j < processes; j++) close(mesh[i][j]);
    }
    char go;
    for (int i = 0; i < processes; i++) {
        if (read(controls[i], &go, 1) != 1) fail("a process is gone");
    }
    *setup = now() - begin;
    for (int i = 0; i < processes; i++) {
        if (write(controls[i], &go, 1) != 1) fail("a process is gone");
    }
    Report all = {0};
    for (int i = 0; i < processes; i++) {
        Report one;
        if (read(controls[i], &one, sizeof one) != sizeof one) fail("a process is gone");
        all.seconds = one.seconds > all.seconds ? one.seconds : all.seconds;
        all.sent.count += one.sent.count;
        all.sent.sum += one.sent.sum;
        all.received.count += one.received.count;
        all.received.sum += one.received.sum;
    }
    while (wait(NULL) > 0) continue;
    return all;
}

/* --- MPI --------------------------------------------------------------------------------------------------------- */

#ifdef WITH_MPI
enum { MORE = 0, LAST = 1 };

static struct {
    unsigned char *out[BUFFERS_MAX], *in[BUFFERS_MAX];
    MPI_Request sends[BUFFERS_MAX], receives[BUFFERS_MAX];
    uint64_t put, taken;
    bool ended;
} ranks[PEERS_MAX];

static unsigned char *isend_acquire(int to) {
    int slot = ranks[to].put % buffers, done;
    MPI_Test(&ranks[to].sends[slot], &done, MPI_STATUS_IGNORE);
    return done ? ranks[to].out[slot] : NULL;
}

static void isend_put(int to, size_t length, bool last) {
    int slot = ranks[to].put++ % buffers;
    MPI_Isend(ranks[to].out[slot], length, MPI_BYTE, to, last ? LAST : MORE, MPI_COMM_WORLD, &ranks[to].sends[slot]);
}

static bool isend_finished(void) {
    int all = 1;
    for (int to = 0; to < processes && all; to++) {
        MPI_Testall(buffers, ranks[to].sends, &all, MPI_STATUSES_IGNORE);
    }
    return all;
}

static void post(int from, int slot) {
    MPI_Irecv(ranks[from].in[slot], message_bytes, MPI_BYTE, from, MPI_ANY_TAG, MPI_COMM_WORLD,
              &ranks[from].receives[slot]);
}

/* In the order of sending, so that the last message is taken last. */
static bool isend_receive(void) {
    bool all = true;
    for (int from = 0; from < processes; from++) {
        for (int i = 0; i < MESSAGES && !ranks[from].ended; i++) {
            int slot = ranks[from].taken % buffers, done, length;
            MPI_Status status;
            MPI_Test(&ranks[from].receives[slot], &done, &status);
            if (!done) break;
            MPI_Get_count(&status, MPI_BYTE, &length);
            take(ranks[from].in[slot], length);
            ranks[from].taken++;
            ranks[from].ended = status.MPI_TAG == LAST;
            if (!ranks[from].ended) post(from, slot);
        }
        all = all && ranks[from].ended;
    }
    return all;
}

static const Medium isend = {isend_acquire, isend_put, isend_finished, isend_receive};

static void open_isend(void) {
    for (int peer = 0; peer < processes; peer++) {
        ranks[peer].ended = keep && peer == me;
        for (int b = 0; b < buffers; b++) {
            ranks[peer].out[b] = memory(message_bytes);
            ranks[peer].in[b] = memory(message_bytes);
            ranks[peer].sends[b] = ranks[peer].receives[b] = MPI_REQUEST_NULL;
            if (!ranks[peer].ended) post(peer, b);
        }
    }
}

static void close_isend(void) {
    for (int peer = 0; peer < processes; peer++) {
        for (int b = 0; b < buffers; b++) {
            if (ranks[peer].receives[b] == MPI_REQUEST_NULL) continue;
            MPI_Cancel(&ranks[peer].receives[b]);
            MPI_Wait(&ranks[peer].receives[b], MPI_STATUS_IGNORE);
        }
    }
}

/* Tuples are partitioned into regions, one for each destination, and exchanged, round by round. */
static void by_alltoallv(unsigned char *out, unsigned char *in) {
    size_t region = message_bytes;
    int send_counts[PEERS_MAX], send_at[PEERS_MAX], counts[PEERS_MAX], at[PEERS_MAX];
    while (next_tuple < end_tuple) {
        for (int to = 0; to < processes; to++) send_counts[to] = 0;
        for (size_t i = 0; i < message_bytes / TUPLE && next_tuple < end_tuple; i++) {
            uint64_t key = key_of(next_tuple);
            int to = destination(key);
            append(out + to * region + send_counts[to], key, next_tuple++);
            send_counts[to] += TUPLE;
        }
        int kept = keep ? send_counts[me] : 0;
        if (keep) send_counts[me] = 0;
        MPI_Alltoall(send_counts, 1, MPI_INT, counts, 1, MPI_INT, MPI_COMM_WORLD);
        int total = 0;
        for (int peer = 0; peer < processes; peer++) {
            send_at[peer] = peer * region;
            at[peer] = total;
            total += counts[peer];
        }
        MPI_Alltoallv(out, send_counts, send_at, MPI_BYTE, in, counts, at, MPI_BYTE, MPI_COMM_WORLD);
        if (kept) take(out + me * region, kept);
        take(in, total);
    }
}

static Report over_mpi(const char *how, double *setup) {
    bool all_to_all = strcmp(how, "alltoallv") == 0;
    double begin = now();
    MPI_Init(NULL, NULL);
    int ranks_there;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_there);
    if (ranks_there != processes) {
        fprintf(stderr, "error: %d ranks for %d processes\n", ranks_there, processes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    next_tuple = me * tuples;
    end_tuple = next_tuple + tuples;
    own = memory(message_bytes);
    unsigned char *out = NULL, *in = NULL;
    if (all_to_all) {
        out = memory(processes * message_bytes);
        in = memory(processes * message_bytes);
    } else {
        open_isend();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now();
    *setup = start - begin;
    if (all_to_all) {
        by_alltoallv(out, in);
    } else {
        work(&isend);
    }
    Report mine = {now() - start, sent, received}, all = {0};
    MPI_Reduce(&mine.seconds, &all.seconds, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine.sent, &all.sent, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine.received, &all.received, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (!all_to_all) close_isend();
    MPI_Finalize();
    if (me != 0) exit(0);
    return all;
}
#else
static Report over_mpi(const char *how, double *setup) {
    (void)setup;
    fprintf(stderr, "error: compiled without MPI, which '%s' needs\n", how);
    exit(2);
}
#endif

int main(int count, char **words) {
    if (count != 8) {
        fprintf(stderr, "usage: %s unix|tcp|alltoallv|isend PROCESSES TUPLES COMPUTE_US MESSAGE_BYTES BUFFERS keep|send\n",
                words[0]);
        return 2;
    }
    const char *how = words[1];
    processes = atoi(words[2]);
    tuples = strtoull(words[3], NULL, 10);
    compute_seconds = atof(words[4]) / 1e6;
    message_bytes = strtoull(words[5], NULL, 10);
    buffers = atoi(words[6]);
    keep = strcmp(words[7], "keep") == 0;
    bool alltoallv = strcmp(how, "alltoallv") == 0, is_isend = strcmp(how, "isend") == 0;
    bool tcp = strcmp(how, "tcp") == 0, known = alltoallv || is_isend || tcp || strcmp(how, "unix") == 0;
    if (!known || processes < 1 || processes > PEERS_MAX || tuples < 1 || buffers < 1 || buffers > BUFFERS_MAX
        || message_bytes < TUPLE || message_bytes % TUPLE || message_bytes > INT32_MAX / (size_t)processes) {
        fprintf(stderr, "error: impossible arguments\n");
        return 2;
    }
    double setup;
    Report all = alltoallv || is_isend ? over_mpi(how, &setup) : over_sockets(tcp, &setup);
    if (all.sent.count != tuples * processes || memcmp(&all.sent, &all.received, sizeof(Total)) != 0) {
        fprintf(stderr, "error: the answer is wrong: %llu tuples sent, %llu received\n",
                (unsigned long long)all.sent.count, (unsigned long long)all.received.count);
        return 1;
    }
    printf("{\"bench\":\"shuffle-baseline\",\"how\":\"%s\",\"own\":\"%s\",\"processes\":%d,\"tuples\":%llu,"
           "\"message_bytes\":%zu,\"buffers\":%d,\"compute_us\":%g,\"seconds\":%.6f,\"setup_seconds\":%.6f,"
           "\"mrec_per_s\":%.3f,\"sum\":%llu,\"ok\":true}\n",
           how, keep ? "keep" : "send", processes, (unsigned long long)tuples, message_bytes, buffers,
           compute_seconds * 1e6, all.seconds, setup, all.received.count / all.seconds / 1e6,
           (unsigned long long)all.received.sum);
    return 0;
}
