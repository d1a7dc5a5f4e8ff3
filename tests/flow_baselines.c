/* What tests/flow_baselines.py compares flows with: MPI as one would use it otherwise (thesis of
 * Thostrup, 2023, sections 7.6.2 and 7.6.3), with the same tuples, the same check and the same measure.
 *
 *     mpirun -n PROCESSES flow_baselines send|alltoall PROCESSES THREADS TUPLES TUPLE_BYTES BATCH COMPUTE_US STRAGGLER_US
 *     mpirun -n PROCESSES flow_baselines join PROCESSES 1 INNER_ROWS 16 OUTER_ROWS 0 0
 *
 * send: each thread of the first half of the processes sends its TUPLES tuples, one by one, by MPI_Send
 * to the same thread of the process that is its partner in the second half, which calls MPI_Recv. Before
 * the measure each thread sends some tuples. With several threads MPI is initialised with
 * MPI_THREAD_MULTIPLE.
 *
 * alltoall: each process makes TUPLES tuples and exchanges them by MPI_Alltoall in rounds of BATCH
 * tuples. Alltoall takes as many for each process, so tuples go to the processes by turns and not by
 * their keys' hashes. A receiver computes COMPUTE_US for each 32 KiB, process 0 STRAGGLER_US.
 *
 * join: see flow_join.h.
 *
 * Time is from a barrier until the slowest process has sent and received everything. Prints a line of
 * JSON.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>

#include "baselines.h"
#include "flow_join.h"

/* Tuples of a thread before the measure begins. */
enum { THREADS_MAX = 64, WARM_TUPLES = 1000 };

static int threads;
static uint64_t tuples, batch;
static size_t tuple_bytes;

/* --- send: one tuple, one message -------------------------------------------------------------------------------- */

typedef struct {
    int number;
    Total sent, received;
} Thread;

/* All threads of a process have warmed up, and may begin. */
static pthread_barrier_t is_warm, may_begin;
static double begin;

static void send_some(Thread *own, unsigned char *tuple, uint64_t count, Total *sent) {
    uint64_t first = ((uint64_t)me * threads + own->number) * tuples;
    for (uint64_t number = first; number < first + count; number++) {
        append_to(tuple, key_of(number), number, sent);
        MPI_Send(tuple, tuple_bytes, MPI_BYTE, me + processes / 2, own->number, MPI_COMM_WORLD);
    }
}

static void receive_some(Thread *own, unsigned char *tuple, uint64_t count, Total *received) {
    for (uint64_t i = 0; i < count; i++) {
        MPI_Recv(tuple, tuple_bytes, MPI_BYTE, me - processes / 2, own->number, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        take_all(tuple, tuple_bytes, tuple_bytes, received);
    }
}

static void *work(void *argument) {
    Thread *own = argument;
    bool sends = me < processes / 2;
    void (*some)(Thread *, unsigned char *, uint64_t, Total *) = sends ? send_some : receive_some;
    unsigned char *tuple = memory(tuple_bytes);
    Total unused = {0};
    some(own, tuple, WARM_TUPLES, &unused);
    pthread_barrier_wait(&is_warm);
    if (own->number == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
        begin = now();
    }
    pthread_barrier_wait(&may_begin);
    some(own, tuple, tuples, sends ? &own->sent : &own->received);
    free(tuple);
    return NULL;
}

static Report by_send(void) {
    Thread all[THREADS_MAX] = {0};
    pthread_t started[THREADS_MAX];
    if (pthread_barrier_init(&is_warm, NULL, threads) || pthread_barrier_init(&may_begin, NULL, threads)) fail("a barrier");
    for (int i = 0; i < threads; i++) {
        all[i].number = i;
        if (i > 0 && pthread_create(&started[i], NULL, work, &all[i])) fail("a thread");
    }
    work(&all[0]);
    Report report = {0};
    for (int i = 0; i < threads; i++) {
        if (i > 0) pthread_join(started[i], NULL);
        report.sent.count += all[i].sent.count;
        report.sent.sum += all[i].sent.sum;
        report.received.count += all[i].received.count;
        report.received.sum += all[i].received.sum;
    }
    report.seconds = now() - begin;
    return report;
}

/* --- alltoall: rounds -------------------------------------------------------------------------------------------- */

static Report by_alltoall(void) {
    uint64_t each = batch / processes, round = each * processes;
    unsigned char *out = memory(round * tuple_bytes), *in = memory(round * tuple_bytes);
    uint64_t next = (uint64_t)me * tuples, end = next + tuples;
    Report report = {0};
    double begin = now();
    while (next < end) {
        for (uint64_t i = 0; i < each; i++) {
            for (int to = 0; to < processes; to++, next++) {
                append_to(out + (to * each + i) * tuple_bytes, key_of(next), next, &report.sent);
            }
        }
        MPI_Alltoall(out, each * tuple_bytes, MPI_BYTE, in, each * tuple_bytes, MPI_BYTE, MPI_COMM_WORLD);
        take_all(in, round * tuple_bytes, tuple_bytes, &report.received);
    }
    report.seconds = now() - begin;
    free(out);
    free(in);
    return report;
}

/* --- all --------------------------------------------------------------------------------------------------------- */

static bool start(int argument_threads) {
    int given, ranks;
    MPI_Init_thread(NULL, NULL, argument_threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    return ranks == processes && (argument_threads == 1 || given == MPI_THREAD_MULTIPLE);
}

int main(int count, char **words) {
    if (count != 9) {
        fprintf(stderr,
                "usage: %s send|alltoall|join PROCESSES THREADS TUPLES TUPLE_BYTES BATCH COMPUTE_US STRAGGLER_US\n",
                words[0]);
        return 2;
    }
    const char *how = words[1];
    processes = atoi(words[2]);
    threads = atoi(words[3]);
    tuples = strtoull(words[4], NULL, 10);
    tuple_bytes = strtoull(words[5], NULL, 10);
    batch = strtoull(words[6], NULL, 10);
    bool by_tuple = strcmp(how, "send") == 0, rounds = strcmp(how, "alltoall") == 0, join = strcmp(how, "join") == 0;
    if (!(by_tuple || rounds || join) || processes < 1 || threads < 1 || threads > THREADS_MAX || tuples < 1
        || tuple_bytes < 16 || (by_tuple && processes % 2) || (rounds && batch < (uint64_t)processes)
        || (rounds && tuples % (batch / processes * processes))) {
        fprintf(stderr, "error: impossible arguments\n");
        return 2;
    }
    if (!start(threads)) {
        fprintf(stderr, "error: MPI has other ranks, or no threads\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    compute_seconds = atof(words[me == 0 ? 8 : 7]) / 1e6;
    Relations relations = join ? make_relations(tuples, batch) : (Relations){0};
    MPI_Barrier(MPI_COMM_WORLD);
    Report mine = by_tuple ? by_send() : rounds ? by_alltoall() : by_join(&relations), all = {0};
    MPI_Reduce(&mine.seconds, &all.seconds, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine.sent, &all.sent, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine.received, &all.received, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    if (me != 0) return 0;
    /* A join's pairs are compared with those of the flows. */
    if (!join && memcmp(&all.sent, &all.received, sizeof(Total)) != 0) {
        fprintf(stderr, "error: the answer is wrong: %llu tuples sent, %llu received\n",
                (unsigned long long)all.sent.count, (unsigned long long)all.received.count);
        return 1;
    }
    printf("{\"bench\":\"flow-baseline\",\"how\":\"%s\",\"processes\":%d,\"threads\":%d,\"tuples\":%llu,\"tuple_bytes\":%zu,"
           "\"batch\":%llu,\"seconds\":%.6f,\"mrec_per_s\":%.3f,\"count\":%llu,\"sum\":%llu,\"ok\":true}\n",
           how, processes, threads, (unsigned long long)tuples, tuple_bytes, (unsigned long long)batch, all.seconds,
           (join ? tuples + batch : all.received.count) / all.seconds / 1e6, (unsigned long long)all.received.count,
           (unsigned long long)all.received.sum);
    return 0;
}
