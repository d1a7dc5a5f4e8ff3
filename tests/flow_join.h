/* The radix hash join by MPI that tests/flow_baselines.c measures, after Barthels et al. (VLDB 2017): the
 * thesis' baseline.
 *
 * Each process reads its part of both relations twice. The first time it counts a histogram of the
 * partitions. The histograms of all say where each process may write, so windows have exactly the size
 * that is needed. The second time it partitions the tuples through write-combining buffers, which go by
 * MPI_Put to their place. A barrier ends the exchange; then each process joins its partitions. Tuples are
 * compressed to 8 bytes, as in crates/dfi/examples/radix_join. A process is a sender and has
 * 2^PARTITION_BITS partitions, whose hash tables are chains in the order of arrival.
 */

/* Local partitions of a process, and tuples of a write-combining buffer; two for each destination. */
enum { PARTITION_BITS = 0, BUFFER_TUPLES = 1024, BUFFERS = 2 };

typedef struct {
    uint64_t key;
    uint32_t value;
} Row;

typedef struct {
    uint32_t key, value;
} Packed;

typedef struct {
    Row *rows;
    uint64_t count;
} Relation;

typedef struct {
    Relation inner, outer;
} Relations;

/* A process's share of a relation, as crates/dfi/examples/radix_join makes it. */
static Relation make_relation(uint64_t rows, uint64_t keys, uint64_t seed) {
    uint64_t part = (rows + processes - 1) / processes, first = me * part < rows ? me * part : rows;
    uint64_t count = first + part < rows ? part : rows - first;
    Relation relation = {memory((count ? count : 1) * sizeof(Row)), count};
    for (uint64_t i = 0; i < count; i++) {
        uint64_t z = ((seed << 40 | (first + i)) + 1) * 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z ^= z >> 27;
        relation.rows[i] = (Row){z % keys, (uint32_t)(z >> 40)};
    }
    return relation;
}

static Relations make_relations(uint64_t inner_rows, uint64_t outer_rows) {
    return (Relations){make_relation(inner_rows, inner_rows, 1), make_relation(outer_rows, inner_rows, 2)};
}

/* The number of a power of two. */
static int bits_of(int count) {
    int bits = 0;
    while (1 << bits < count) bits++;
    return bits;
}

/* Sends a relation to the processes of its partitions. Returns what came, by local partition. */
typedef struct {
    MPI_Win window;
    Packed *tuples;
    uint64_t starts[(1 << PARTITION_BITS) + 1];
} Arrived;

static Arrived exchange(const Relation *relation) {
    int bits = bits_of(processes) + PARTITION_BITS, partitions = 1 << bits, locals = 1 << PARTITION_BITS;
    uint64_t *own = memory(partitions * sizeof(uint64_t));
    uint64_t *all = memory((size_t)processes * partitions * sizeof(uint64_t));
    for (uint64_t i = 0; i < relation->count; i++) own[relation->rows[i].key & (partitions - 1)]++;
    MPI_Allgather(own, partitions, MPI_UINT64_T, all, partitions, MPI_UINT64_T, MPI_COMM_WORLD);
    Arrived arrived = {0};
    /* Partition p is at process p >> PARTITION_BITS, after that process's earlier partitions. */
    uint64_t *at = memory(partitions * sizeof(uint64_t));
    uint64_t end = 0;
    for (int p = 0; p < partitions; p++) {
        if (p % locals == 0) end = 0;
        if (p / locals == me) arrived.starts[p % locals] = end;
        at[p] = end;
        for (int from = 0; from < processes; from++) {
            if (from < me) at[p] += all[(size_t)from * partitions + p];
            end += all[(size_t)from * partitions + p];
        }
        if (p / locals == me) arrived.starts[p % locals + 1] = end;
    }
    MPI_Win_allocate(arrived.starts[locals] * sizeof(Packed), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &arrived.tuples,
                     &arrived.window);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, arrived.window);
    Packed *buffers = memory((size_t)partitions * BUFFERS * BUFFER_TUPLES * sizeof(Packed));
    uint32_t *fills = memory(partitions * sizeof(uint32_t)), *turns = memory(partitions * sizeof(uint32_t));
    for (uint64_t i = 0; i <= relation->count; i++) {
        bool over = i == relation->count;
        uint64_t key = over ? 0 : relation->rows[i].key;
        int first = over ? 0 : key & (partitions - 1), last = over ? partitions - 1 : first;
        for (int p = first; p <= last; p++) {
            Packed *buffer = buffers + ((size_t)p * BUFFERS + turns[p] % BUFFERS) * BUFFER_TUPLES;
            if (!over) buffer[fills[p]++] = (Packed){key >> bits, relation->rows[i].value};
            if (fills[p] < BUFFER_TUPLES && !(over && fills[p])) continue;
            MPI_Put(buffer, fills[p] * sizeof(Packed), MPI_BYTE, p / locals, at[p] * sizeof(Packed),
                    fills[p] * sizeof(Packed), MPI_BYTE, arrived.window);
            at[p] += fills[p];
            fills[p] = 0;
            /* The other buffer is written next: what was put from it before has to have left. */
            if (++turns[p] % BUFFERS == 0) MPI_Win_flush_local(p / locals, arrived.window);
        }
    }
    MPI_Win_unlock_all(arrived.window);
    MPI_Barrier(MPI_COMM_WORLD);
    free(own), free(all), free(at), free(buffers), free(fills), free(turns);
    return arrived;
}

static inline uint32_t slot_of(uint32_t key, uint32_t mask) {
    return (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) & mask;
}

/* Joins a partition. */
static void join_partition(const Packed *inner, uint64_t inner_count, const Packed *outer, uint64_t outer_count, Total *joined) {
    uint32_t slots = 1024, none = UINT32_MAX;
    while (slots < inner_count) slots *= 2;
    uint32_t *heads = memory(slots * sizeof(uint32_t)), *nexts = memory((inner_count ? inner_count : 1) * sizeof(uint32_t));
    memset(heads, 0xff, slots * sizeof(uint32_t));
    for (uint64_t i = 0; i < inner_count; i++) {
        uint32_t slot = slot_of(inner[i].key, slots - 1);
        nexts[i] = heads[slot];
        heads[slot] = i;
    }
    for (uint64_t i = 0; i < outer_count; i++) {
        for (uint32_t at = heads[slot_of(outer[i].key, slots - 1)]; at != none; at = nexts[at]) {
            if (inner[at].key != outer[i].key) continue;
            joined->count++;
            joined->sum += (uint64_t)inner[at].value * outer[i].value;
        }
    }
    free(heads), free(nexts);
}

static Report by_join(const Relations *relations) {
    double begin = now();
    Arrived inner = exchange(&relations->inner), outer = exchange(&relations->outer);
    Report report = {0};
    for (int p = 0; p < 1 << PARTITION_BITS; p++) {
        join_partition(inner.tuples + inner.starts[p], inner.starts[p + 1] - inner.starts[p], outer.tuples + outer.starts[p],
                       outer.starts[p + 1] - outer.starts[p], &report.received);
    }
    report.seconds = now() - begin;
    MPI_Win_free(&inner.window);
    MPI_Win_free(&outer.window);
    return report;
}
