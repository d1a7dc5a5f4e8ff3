/* The radix hash join by MPI that tests/flow_baselines.c measures, after Barthels et al. (VLDB 2017): the
 * thesis' baseline.
 *
 * Each process reads its part of both relations twice. The first time it counts histograms of the
 * partitions. The histograms of all say where each process may write, so one window has exactly the size
 * that both relations need. The second time it partitions the tuples through write-combining buffers,
 * which go by MPI_Put to their place. One barrier ends the exchange of both; then each process divides its
 * tuples so that a table of each part fits a processor's cache, and joins part by part. Tuples are compressed
 * to 8 bytes. Hash tables, and the number of parts, are those of crates/dfi/examples/radix_join. A process is a
 * sender and has 2^PARTITION_BITS partitions.
 */

/* Partitions of a process, tuples of a write-combining buffer, two for each destination; parts of a partition. */
enum { PARTITION_BITS = 0, BUFFER_TUPLES = 1024, BUFFERS = 2, PART_BITS = 8, PARTS = 1 << PART_BITS, TABLE_TUPLES = 1 << 14 };

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

/* Memory with any content. */
static void *room(size_t bytes) {
    void *found = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!found) fail("memory");
    return found;
}

enum { LOCALS = 1 << PARTITION_BITS, RELATIONS = 2 };

/* What came: both relations in one window, each by local partition. */
typedef struct {
    MPI_Win window;
    Packed *tuples;
    uint64_t starts[RELATIONS][LOCALS + 1];
} Arrived;

/* Where a process writes: its first place in each partition of a relation, at the partition's process. */
typedef struct {
    uint64_t *at;
    int partitions, bits;
} Places;

/* Puts the tuples of a relation into their places. */
static void put_all(const Relation *relation, const Places *places, MPI_Win window, Packed *buffers) {
    int partitions = places->partitions;
    uint64_t *at = places->at;
    uint32_t *fills = calloc(partitions, sizeof(uint32_t)), *turns = calloc(partitions, sizeof(uint32_t));
    if (!fills || !turns) fail("memory");
    for (uint64_t i = 0; i <= relation->count; i++) {
        bool over = i == relation->count;
        uint64_t key = over ? 0 : relation->rows[i].key;
        int first = over ? 0 : key & (partitions - 1), last = over ? partitions - 1 : first;
        for (int p = first; p <= last; p++) {
            Packed *buffer = buffers + ((size_t)p * BUFFERS + turns[p] % BUFFERS) * BUFFER_TUPLES;
            if (!over) buffer[fills[p]++] = (Packed){key >> places->bits, relation->rows[i].value};
            if (fills[p] < BUFFER_TUPLES && !(over && fills[p])) continue;
            MPI_Put(buffer, fills[p] * sizeof(Packed), MPI_BYTE, p / LOCALS, at[p] * sizeof(Packed),
                    fills[p] * sizeof(Packed), MPI_BYTE, window);
            at[p] += fills[p];
            fills[p] = 0;
            /* The other buffer is written next: what was put from it before has to have left. */
            if (++turns[p] % BUFFERS == 0) MPI_Win_flush_local(p / LOCALS, window);
        }
    }
    /* The next relation has the same buffers. */
    MPI_Win_flush_local_all(window);
    free(fills), free(turns);
}

/* Sends both relations to the processes of their partitions. */
static Arrived exchange(const Relation *relations[RELATIONS]) {
    int bits = bits_of(processes) + PARTITION_BITS, partitions = 1 << bits, all_partitions = RELATIONS * partitions;
    uint64_t *own = calloc(all_partitions, sizeof(uint64_t)), *at = room(all_partitions * sizeof(uint64_t));
    uint64_t *all = room((size_t)processes * all_partitions * sizeof(uint64_t));
    if (!own) fail("memory");
    for (int r = 0; r < RELATIONS; r++) {
        for (uint64_t i = 0; i < relations[r]->count; i++) own[r * partitions + (relations[r]->rows[i].key & (partitions - 1))]++;
    }
    MPI_Allgather(own, all_partitions, MPI_UINT64_T, all, all_partitions, MPI_UINT64_T, MPI_COMM_WORLD);
    Arrived arrived = {0};
    /* Partition p is at process p / LOCALS. There the inner relation comes before the outer one, and each by partition. */
    uint64_t bytes = 0;
    for (int to = 0; to < processes; to++) {
        uint64_t end = 0;
        for (int r = 0; r < RELATIONS; r++) {
            for (int local = 0; local < LOCALS; local++) {
                int p = r * partitions + to * LOCALS + local;
                if (to == me) arrived.starts[r][local] = end;
                at[p] = end;
                for (int from = 0; from < processes; from++) {
                    uint64_t count = all[(size_t)from * all_partitions + p];
                    if (from < me) at[p] += count;
                    end += count;
                }
                if (to == me) arrived.starts[r][local + 1] = end;
            }
        }
        if (to == me) bytes = end * sizeof(Packed);
    }
    MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &arrived.tuples, &arrived.window);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, arrived.window);
    Packed *buffers = room((size_t)partitions * BUFFERS * BUFFER_TUPLES * sizeof(Packed));
    for (int r = 0; r < RELATIONS; r++) {
        Places places = {at + r * partitions, partitions, bits};
        put_all(relations[r], &places, arrived.window, buffers);
    }
    MPI_Win_unlock_all(arrived.window);
    MPI_Barrier(MPI_COMM_WORLD);
    free(own), free(all), free(at), free(buffers);
    return arrived;
}

static inline uint64_t hash_of(uint32_t key) {
    return key * 0x9e3779b97f4a7c15u;
}

static inline uint32_t slot_of(uint32_t key, uint32_t mask) {
    return (uint32_t)(hash_of(key) >> 32) & mask;
}

static inline uint32_t part_of(uint32_t key) {
    return hash_of(key) >> (64 - PART_BITS);
}

/* A tuple of a hash table, and the next one of its chain. */
typedef struct {
    Packed tuple;
    uint32_t next;
} Link;

/* Joins a part. */
static void join_part(const Packed *inner, uint64_t inner_count, const Packed *outer, uint64_t outer_count, Total *joined) {
    uint32_t slots = 1, none = UINT32_MAX;
    while (slots < inner_count) slots *= 2;
    uint32_t *heads = room(slots * sizeof(uint32_t));
    Link *links = room(inner_count * sizeof(Link));
    memset(heads, 0xff, slots * sizeof(uint32_t));
    for (uint64_t i = 0; i < inner_count; i++) {
        uint32_t slot = slot_of(inner[i].key, slots - 1);
        links[i] = (Link){inner[i], heads[slot]};
        heads[slot] = i;
    }
    for (uint64_t i = 0; i < outer_count; i++) {
        for (uint32_t at = heads[slot_of(outer[i].key, slots - 1)]; at != none; at = links[at].next) {
            if (links[at].tuple.key != outer[i].key) continue;
            joined->count++;
            joined->sum += (uint64_t)links[at].tuple.value * outer[i].value;
        }
    }
    free(heads), free(links);
}

/* Tuples by part, and where each part begins. */
typedef struct {
    Packed *tuples;
    uint64_t starts[PARTS + 1];
} Parts;

static void divide(const Packed *tuples, uint64_t count, Parts *parts) {
    uint64_t at[PARTS] = {0};
    for (uint64_t i = 0; i < count; i++) at[part_of(tuples[i].key)]++;
    parts->starts[0] = 0;
    for (int part = 0; part < PARTS; part++) {
        parts->starts[part + 1] = parts->starts[part] + at[part];
        at[part] = parts->starts[part];
    }
    parts->tuples = room(count * sizeof(Packed));
    for (uint64_t i = 0; i < count; i++) parts->tuples[at[part_of(tuples[i].key)]++] = tuples[i];
}

/* Joins a partition. */
static void join_partition(const Packed *inner, uint64_t inner_count, const Packed *outer, uint64_t outer_count, Total *joined) {
    if (inner_count <= TABLE_TUPLES) {
        join_part(inner, inner_count, outer, outer_count, joined);
        return;
    }
    Parts inners, outers;
    divide(inner, inner_count, &inners);
    divide(outer, outer_count, &outers);
    for (int part = 0; part < PARTS; part++) {
        const uint64_t *from = inners.starts + part, *other = outers.starts + part;
        join_part(inners.tuples + from[0], from[1] - from[0], outers.tuples + other[0], other[1] - other[0], joined);
    }
    free(inners.tuples), free(outers.tuples);
}

static Report by_join(const Relations *relations) {
    double begin = now();
    Arrived arrived = exchange((const Relation *[]){&relations->inner, &relations->outer});
    Report report = {0};
    for (int p = 0; p < LOCALS; p++) {
        const uint64_t *inner = arrived.starts[0] + p, *outer = arrived.starts[1] + p;
        join_partition(arrived.tuples + inner[0], inner[1] - inner[0], arrived.tuples + outer[0], outer[1] - outer[0],
                       &report.received);
    }
    report.seconds = now() - begin;
    MPI_Win_free(&arrived.window);
    return report;
}
