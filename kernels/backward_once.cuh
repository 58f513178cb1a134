#pragma once
// One pass over keys for dQ, dK and dV (backward_once, backward_atomic). IN_ORDER: what each tile of keys adds to dQ is added in
// the order of the keys; else as it comes.

#include "backward_wgmma.cuh"

// ---- The sums in global memory, before and after. Tiles of keys add to dQ in chains, each with its own sums; parts of the queries
// ---- have their own sums of dK and dV.

constexpr int BC = ONCE_TILE, BR = 128;  // queries that are streamed, keys that are owned
// dQ's transpose is computed: each group has 64 columns of 64 queries, or of half of 128.
static_assert(BC * COLUMNS == 64 * 128, "each group computes 64 x 64 numbers of a tile of dQ");
constexpr unsigned DQ_BYTES = BC * COLUMNS * 4;

typedef float Part[8][4];  // of a tile of dQ: 64 x 64 numbers, a group's
__device__ __forceinline__ int first_query_of(int group) { return BC == 128 ? group * 64 : 0; }
__device__ __forceinline__ int first_column_of(int group) { return BC == 128 ? 0 : group * 64; }

// SEQUENCES: of a head in all of them, as stats_rows has its rows.
__device__ __forceinline__ int tiles_of(const TiledParams& p) { return SEQUENCES ? p.stats_rows / BC : ceil_div(p.Nq, BC); }
__device__ __forceinline__ int sums_of(const TiledParams& p) { return p.batches * p.heads * tiles_of(p); }  // of a chain
// Where 16 bytes of a thread's part of dQ lie, in a tile of it.
__device__ __forceinline__ unsigned place(int group, int n) { return ((group * 8 + n) * 128 + threadIdx.x % 128) * 16; }
// Where a part's sums lie, of dK (0) or of dV (1): what the `thread`-th of two groups has of the n-th 8 columns.
__device__ __forceinline__ float4* part_sums(const TiledParams& p, int part, int key_tile, int which, int n, int thread) {
    const long long tile = ((long long)part * ceil_div(p.Nk, BR) + key_tile) * 2 + which;
    return (float4*)(p.parts + tile * (BR * COLUMNS)) + n * 256 + thread;
}

// How many tiles of keys add to a tile of queries before this one, in its chain. WINDOW: from the first one on that has a key which
// the first of these queries sees; to the first queries add all, if only zeros.
template <class Work> __device__ __forceinline__ int turn_of(const Work& p, int keys, int tile) {
    if (!WINDOW) return keys / p.chains;
    const int before = tile > 0 ? first_key_of(p, tile * BC) / BR : 0;
    return keys / p.chains - (before + p.chains - 1 - keys % p.chains) / p.chains;
}

// What runs before: stats, and nothing is counted. Sums that are added as they come begin at 0.
template <bool IN_ORDER> __device__ __forceinline__ void prepare(const TiledParams& p) {
    const int n = blockIdx.x * THREADS + threadIdx.x;
    for (int i = n; i <= p.chains * sums_of(p); i += gridDim.x * THREADS) p.counts[i] = 0;
    const long long numbers = (long long)p.chains * p.batches * p.heads * p.stats_rows * COLUMNS;
    if (!IN_ORDER)
        for (long long i = n * 4LL; i < numbers; i += gridDim.x * THREADS * 4LL) *(float4*)(p.dq_sums + i) = float4{0, 0, 0, 0};
    compute_stats<BC>(p);
}

// The transpose of 8 x 8 numbers of 16 bits: each lane has two columns of a row.
__device__ __forceinline__ unsigned transpose(unsigned x) {
    const unsigned lane = threadIdx.x % 32, from = lane % 4 * 8 + lane / 8, shift = lane / 4 % 2 * 16;
    const unsigned low = SHFL(x, from), high = SHFL(x, from + 4);
    return low >> shift & 0xffff | high >> shift << 16;
}
// Writes the transpose of sums, whose rows are 64 columns from `first` on, times a factor.
__device__ __forceinline__ void store_transposed(const Part& sum, const Matrix<unsigned short>& m, int batch, int head, int row,
                                                 int rows, float factor, int first) {
    const int column = first + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 2 * 8;
    row += threadIdx.x % 32 / 4;
    UNROLL for (int n = 0; n < 8; n += 2, row += 16) {
        unsigned x[4];
        UNROLL for (int i = 0; i < 4; i++)
            x[i] = transpose(pack(sum[n + i / 2][i % 2 * 2] * factor, sum[n + i / 2][i % 2 * 2 + 1] * factor));
        exchange_pairs(x);
        const int at = row + threadIdx.x % 4 / 2 * 8;
        if (at < rows && column < D)
            *(uint4*)(m.data + batch * m.batch + head * m.head + at * m.row + column) = make_uint4(x[0], x[1], x[2], x[3]);
    }
}

// What runs after. First blocks: chains' sums become dQ, the last ones first, which are in the L2 cache still. In order, a tile that no
// keys have been added to has not been written.
template <bool IN_ORDER> __device__ __forceinline__ void round_dq(const TiledParams& p) {
    const int sums = sums_of(p) - 1 - blockIdx.x;
    const int tiles = tiles_of(p), head = sums / tiles, tile = sums % tiles, group = threadIdx.x / 128;
    Part dQ;
    UNROLL for (int n = 0; n < 8; n++) UNROLL for (int e = 0; e < 4; e++) dQ[n][e] = 0;
    for (int chain = 0; chain < p.chains; chain++) {
        const long long at = (long long)chain * sums_of(p) + sums;
        if (IN_ORDER && !p.counts[at]) continue;
        const char* from = (const char*)p.dq_sums + at * DQ_BYTES;
        UNROLL for (int n = 0; n < 8; n++) {
            const float4 x = *(const float4*)(from + place(group, n));
            dQ[n][0] += x.x, dQ[n][1] += x.y, dQ[n][2] += x.z, dQ[n][3] += x.w;
        }
    }
    const int row = tile * BC + first_query_of(group), column = first_column_of(group);
#if SEQUENCES
    const Span s = p.stats_spans[tile];
    store_transposed(dQ, of_sequence(p, s).dq, 0, head, row - s.query_tile * BC, s.rows, p.scale, column);
#else
    store_transposed(dQ, p.dq, head / p.heads, head % p.heads, row, p.Nq, p.scale, column);
#endif
}
// Blocks behind these: 32 columns of a tile of dK or dV that parts have summed up. Parts are added in their order.
__device__ __forceinline__ void add_parts(const TiledParams& p, int block) {
    constexpr int PIECES = COLUMNS / 32;
    const int tiles = ceil_div(p.Nk, BR), parts = p.split_heads * p.split_rows;
    const int piece = block % PIECES, which = block / PIECES % 2, tile = block / PIECES / 2 % tiles;
    const int split = block / PIECES / 2 / tiles, head = p.split_from + split;
    const int first = CAUSAL ? min(max(0, tile * BR - p.causal_offset) / BC, tiles_of(p) - 1) : 0;
    float sum[4][4];
    UNROLL for (int n = 0; n < 4; n++) UNROLL for (int e = 0; e < 4; e++) sum[n][e] = 0;
    for (int part = 0; part < parts; part++) {
        if ((part % p.split_rows + 1) * tiles_of(p) / p.split_rows <= first) continue;  // of no rows that see these keys
        UNROLL for (int n = 0; n < 4; n++) {
            const float4 x = *part_sums(p, split * parts + part, tile, which, piece * 4 + n, threadIdx.x);
            sum[n][0] += x.x, sum[n][1] += x.y, sum[n][2] += x.z, sum[n][3] += x.w;
        }
    }
    const int row = tile * BR + threadIdx.x / 128 * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    store(sum, which ? p.dv : p.dk, head / p.kv_heads, head % p.kv_heads, row, p.Nk, which ? 1 : p.scale, piece * 32);
}
template <bool IN_ORDER> __device__ __forceinline__ void round_sums(const TiledParams& p) {
    if (blockIdx.x < sums_of(p)) round_dq<IN_ORDER>(p);
    else add_parts(p, blockIdx.x - sums_of(p));
}

// ---- The pass

extern __shared__ __align__(1024) float4 shared[];

using Streams = Geometry<true, 2, ONCE_TILE, ONCE_STAGES, false, ONCE_EARLY>;
constexpr int SUMS = ONCE_SUMS;  // buffers for tiles of dQ
constexpr unsigned DS_BYTES = BR * BC * 2;
constexpr unsigned MORE_BARRIERS_AT = Streams::BARRIERS_AT + 16 * (2 + ONCE_STAGES);
constexpr unsigned DS_BARRIERS_AT = MORE_BARRIERS_AT + 16 * SUMS, NUMBERS_AT = DS_BARRIERS_AT + 16 * 2;
constexpr unsigned CLEARED_AT = NUMBERS_AT + 16;  // SEQUENCES: a barrier
constexpr unsigned DS_AT = ceil_div(CLEARED_AT + 8 * SEQUENCES, 1024) * 1024, DQ_AT = DS_AT + 2 * DS_BYTES;

struct Memory : Streams {
    __device__ __forceinline__ unsigned ds(unsigned n) const { return base + DS_AT + n % 2 * DS_BYTES; }
    __device__ __forceinline__ unsigned dq(unsigned n) const { return base + DQ_AT + n % SUMS * DQ_BYTES; }
    __device__ __forceinline__ unsigned task_full() const { return base + Streams::BARRIERS_AT; }  // a task, and its rows are there
    __device__ __forceinline__ unsigned task_empty() const { return task_full() + 8; }
    __device__ __forceinline__ unsigned dq_full(unsigned n) const { return base + MORE_BARRIERS_AT + n % SUMS * 16; }
    __device__ __forceinline__ unsigned dq_empty(unsigned n) const { return dq_full(n) + 8; }
    __device__ __forceinline__ unsigned ds_full(unsigned n) const { return base + DS_BARRIERS_AT + n % 2 * 16; }
    __device__ __forceinline__ unsigned ds_empty(unsigned n) const { return ds_full(n) + 8; }
    __device__ __forceinline__ unsigned number(unsigned n) const { return base + NUMBERS_AT + n % 2 * 8; }  // the n-th task's
    __device__ __forceinline__ unsigned cleared() const { return base + CLEARED_AT; }
    __device__ __forceinline__ void make_barriers() const {
        if (SEQUENCES) mbarrier_init<8>(cleared());
        mbarrier_init<1>(task_full()), mbarrier_init<8 * 32 + SUMS>(task_empty());
        for (int n = 0; n < SUMS; n++) mbarrier_init<8>(dq_full(n)), mbarrier_init<1>(dq_empty(n));
        for (int n = 0; n < 2; n++) mbarrier_init<8>(ds_full(n)), mbarrier_init<8>(ds_empty(n));
        for (int n = 0; n < STAGES; n++) mbarrier_init<1>(full(n)), mbarrier_init<8>(empty(n));
        fence_mbarrier_init();
    }
};

__device__ __forceinline__ int tasks_of(const TiledParams& p) {
    if (SEQUENCES) return p.kv_heads * p.dkdv_tiles;
    const int heads = p.batches * p.kv_heads, split = heads - p.split_from;
    return (p.split_from + split * p.split_heads * p.split_rows) * ceil_div(p.Nk, BR);
}
// Calls work(task) for each task that this block's producer thread claims.
template <class Work> __device__ __forceinline__ void each_claimed(const TiledParams& p, const Memory& memory, Work work) {
    for (unsigned n = 0;; n++) {
        mbarrier_wait(memory.task_full(), n % 2);
        const int task = __float_as_int(load_shared2(memory.number(n)).x);
        if (task >= tasks_of(p)) return;
        work(task_of<Streams>(p, task));
    }
}
// The tiles of a task: the last one first, of all heads, so that a causal task is behind those before it from its first tile on.
// WINDOW: all of a head, then of the next one, as tasks side by side see other queries: of one head at a time, these and their sums
// stay in the L2 cache.
template <class Work> __device__ __forceinline__ void each_tile(const Task& t, Work work) {
    int head = t.head, j = t.end - 1;
#pragma unroll 1
    for (int left = t.heads * (t.end - t.first); left > 0; left--) {
        work(head, j);
        if (WINDOW) {
            if (--j < t.first) j = t.end - 1, head++;
        } else if (++head == t.head + t.heads) head = t.head, j--;
    }
}

__device__ __forceinline__ bool is_empty(const TiledParams& p, int task) {  // a part of the rows that sees none of the keys
    const Task t = task_of<Streams>(p, task);
    return t.first >= t.end;
}

// The loop of the producer thread. It claims tasks, and passes their numbers to the other threads through shared memory.
__device__ __forceinline__ void produce_tiles(const TiledParams& p, const Memory& memory) {
    int* next = p.counts + p.chains * sums_of(p);
    unsigned issued = 0;
    for (unsigned n = 0;; n++) {
        int task = atomicAdd(next, 1);
        while (!SEQUENCES && task < tasks_of(p) && is_empty(p, task)) task = atomicAdd(next, 1);
        mbarrier_wait(memory.task_empty(), n % 2 ^ 1);
        store_shared(memory.number(n), __int_as_float(task), 0);
        if (task >= tasks_of(p)) return mbarrier_arrive(memory.task_full());
        const Task t = task_of<Streams>(p, task);
        mbarrier_expect<4 * Streams::OWN_BYTES>(memory.task_full());
        for (int g = 0; g < 2; g++) copy_own(p.dkdv_maps, memory, t, g, memory.task_full());
        each_tile(t, [&](int head, int j) { copy_tile(p, p.dkdv_maps, memory, t, head, j, issued++); });
    }
}

// The loop of the thread for a buffer of dQ: it adds tiles to the sums in device memory; in order, after the tiles before. The
// sums are there for the next block once the copy is done, which takes longer than a tile's products: hence two such threads.
template <bool IN_ORDER>
__device__ __forceinline__ void add_tiles(const TiledParams& p, const Memory& memory, unsigned mine) {
    unsigned added = 0;
    each_claimed(p, memory, [&](const Task& t) {
        mbarrier_arrive(memory.task_empty());  // with the task's number
        each_tile(t, [&](int head, int j) {
            const unsigned n = added++;
            if (n % SUMS != mine) return;
            const int keys = t.row0 / BR, turn = turn_of(work_of(p, t), keys, j);
#if SEQUENCES
            const long long tile = (long long)head * tiles_of(p) + t.span.query_tile + j;
#else
            const long long tile = (long long)(keys % p.chains) * sums_of(p) + (t.batch * p.heads + head) * tiles_of(p) + j;
#endif
            if (IN_ORDER) semaphore_wait(p.counts + tile, turn);
            mbarrier_wait(memory.dq_full(n), n / SUMS % 2);
            float* to = p.dq_sums + tile * (DQ_BYTES / 4);
            if (IN_ORDER && turn == 0) store_bulk<DQ_BYTES>(to, memory.dq(n));
            else add_bulk<DQ_BYTES>(to, memory.dq(n));
            bulk_commit();
            bulk_wait_read();
            mbarrier_arrive(memory.dq_empty(n));
            if (!IN_ORDER) return;
            bulk_wait();
            semaphore_release(p.counts + tile, turn + 1);
        });
    });
}

// What all warps of a group have done: the lanes' writes to shared memory are there for the tensor cores and the copy engine.
__device__ __forceinline__ void warp_arrives(unsigned barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
}
// A tile's dS for both groups, queries down, in rows of 64 keys. The n-th dS is that of the tile before the n-th; the 0-th is
// zeros.
__device__ __forceinline__ void store_dS(const Weights<BC>& dS, const Memory& memory, unsigned n, int group) {
    const unsigned lane = threadIdx.x % 32, chunk = threadIdx.x / 32 % 4 * 2 + lane / 8 % 2;
    const unsigned to = memory.ds(n) + group * BC * 128 + (lane / 16 * 8 + lane % 8) * 128 + (chunk ^ lane % 8) * 16;
    mbarrier_wait(memory.ds_empty(n), n / 2 % 2 ^ 1);
    UNROLL for (int i = 0; i < BC / 16; i++) store_transposed(to + i * 16 * 128, dS[i]);
    fence_proxy_async();
    warp_arrives(memory.ds_full(n));
}
// dQ^T = K^T dS^T, of a tile of 64 queries each group 64 columns of 128; of 128 queries, 64 of them.
__device__ __forceinline__ void issue_dQ(Part& dQ, const Memory& memory, unsigned n, int group) {
    mbarrier_wait(memory.ds_full(n), n / 2 % 2);
    wgmma_fence();
    const unsigned a = matrix_at(memory.own(0, 0) + first_column_of(group) * 128, 16);
    const unsigned b = matrix_at(memory.ds(n) + first_query_of(group) * 128, 16);
    UNROLL for (int i = 0; i < BR / 16; i++)
        wgmma_rows_of_a(dQ, descriptor(a + i / 4 * (2 * Streams::OWN_BYTES / 16) + i % 4 * 128),
                        descriptor(b + (i / 4 * BC * 128 + i % 4 * 32) / 16), i > 0);
    wgmma_commit();
}
// dQ of the n-th tile, for the copy engine.
__device__ __forceinline__ void store_dQ(const Part& dQ, const Memory& memory, unsigned n, int group) {
    mbarrier_wait(memory.dq_empty(n), n / SUMS % 2 ^ 1);
    UNROLL for (int i = 0; i < 8; i++)
        store_shared(memory.dq(n) + place(group, i), dQ[i][0], dQ[i][1], dQ[i][2], dQ[i][3]);
}
__device__ __forceinline__ void signal_dQ(const Memory& memory, unsigned n) {
    fence_proxy_async();
    warp_arrives(memory.dq_full(n));
}

// The first query that sees a key: none sees a key past the end. (Its weights, of scores of 0, may be infinite.)
template <class Work> __device__ __forceinline__ int first_query(const Work& p, int key) {
    return MISSING && key >= p.Nk ? 1 << 30 : CAUSAL ? key - p.causal_offset : 0;
}

__device__ __forceinline__ void multiply(const TiledParams& p, const Memory& memory, int group) {
    const int column = threadIdx.x % 4 * 2;
    const int thread_row = group * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    unsigned consumed = 0;
    [[maybe_unused]] unsigned met = 0;
    Weights<BC> none;
    UNROLL for (int n = 0; n < BC / 16; n++) UNROLL for (int e = 0; e < 4; e++) none[n][e] = 0;
    store_dS(none, memory, 0, group);
    each_claimed(p, memory, [&](const Task& t) {
        const int row = t.row0 + thread_row;
        const auto& w = work_of(p, t);
        // Tiles below `full` need a mask: those at the diagonal, and all of them where keys are missing.
        int full = CAUSAL ? ceil_div(max(0, t.row0 + group * 64 + 63 - w.causal_offset), BC) : 0;
        if (MISSING && t.row0 + group * 64 + 63 >= w.Nk) full = t.end;
        const int full_rows = end_row_of(w, t.row0 + group * 64);  // WINDOW: those before see all of the group's keys, or are above
        Group<Streams> work;
        clear(work.first), clear(work.second);
        const unsigned first = consumed;
        unsigned left = t.heads * (t.end - t.first);
        memory.wait(consumed);
#if SEQUENCES
        // What lies behind a sequence's last key, and behind its last row, may be infinite.
        const int rows_left = w.Nq - (t.end - 1) * BC, keys_left = w.Nk - t.row0 - group * 64;
        auto clear_tile = [&](unsigned n) {
            const bool is_last = WINDOW ? (n - first) % (t.end - t.first) == 0 : n - first < t.heads;
            if (!is_last || rows_left >= BC) return;
            UNROLL for (int which = 0; which < 2; which++) clear_rows<BC, 256>(memory.tile(n, which), rows_left);
            meet(memory.cleared(), met);
        };
        if (keys_left < 64) clear_rows<64, 128>(memory.own(group, 0), max(0, keys_left));
        if (w.Nk < t.row0 + BR) meet(memory.cleared(), met);
        clear_tile(consumed);
#endif
        wgmma_fence();
        issue_scores<BC>(work.S, memory.own(group, 0), memory.tile(consumed, 0));
        wgmma_wait<0>();
        fence_registers(work.S);
        each_tile(t, [&](int head, int j) {
            wgmma_fence();
            issue_scores<BC>(work.dP, memory.own(group, 1), memory.tile(consumed, 1));
            auto seen = [&](int key) -> Seen { return {first_query(w, key), WINDOW ? key - w.causal_offset + w.window : 0}; };
            const int from = j * BC + column;
            const bool masked = ((CAUSAL || MISSING) && j < full) || (WINDOW && (j + 1) * BC > full_rows);
            work.finish(w, memory, consumed, masked, seen(row).after(from), seen(row + 8).after(from), {t.batch, head, row, from});
            store_dS(work.dS, memory, consumed + 1, group);
            // dQ is that of the tile before, of which the other group's dS, too, has been there for long. A task's first one is
            // unused: a branch around products would make the compiler serialise them.
            Part dQ;
            issue_dQ(dQ, memory, consumed, group);
            const bool more = --left > 0;  // else the scores that are issued are unused
            wgmma_wait<1>();
            work.fence_sums();
            wgmma_wait<0>();
            fence_registers(dQ);
            if (consumed != first) store_dQ(dQ, memory, consumed - 1, group);  // before products that need all of shared memory's rate
            if (more) memory.wait(consumed + 1);
#if SEQUENCES
            if (more) clear_tile(consumed + 1);
#endif
            wgmma_fence();
            issue_scores<BC>(work.S, memory.own(group, 0), memory.tile(consumed + more, 0));
            if (more) memory.release(consumed);
            warp_arrives(memory.ds_empty(consumed));
            if (consumed != first) signal_dQ(memory, consumed - 1);
            wgmma_wait<0>();
            fence_registers(work.S);
            consumed++;
        });
        Part dQ;
        issue_dQ(dQ, memory, consumed, group);
        wgmma_wait<0>();
        fence_registers(dQ);
        store_dQ(dQ, memory, consumed - 1, group);
        signal_dQ(memory, consumed - 1);
        memory.release(consumed - 1);
        mbarrier_arrive(memory.task_empty());  // every lane has read the task's number
        if (t.part < 0) {
            store(work.first, w.dk, t.batch, t.own_head, row, w.Nk, p.scale);
            store(work.second, w.dv, t.batch, t.own_head, row, w.Nk, 1);
        } else UNROLL for (int n = 0; n < COLUMNS / 8; n++) {
            const float *dk = work.first[n], *dv = work.second[n];
            *part_sums(p, t.part, t.row0 / BR, 0, n, threadIdx.x - 128) = float4{dk[0], dk[1], dk[2], dk[3]};
            *part_sums(p, t.part, t.row0 / BR, 1, n, threadIdx.x - 128) = float4{dv[0], dv[1], dv[2], dv[3]};
        }
    });
}

template <bool IN_ORDER> __device__ __forceinline__ void one_pass(const TiledParams& p) {
    const Memory memory{{shared_start(shared)}};
    if (threadIdx.x == 0) memory.make_barriers();
    __syncthreads();
    const int group = warpgroup_index(), warp = threadIdx.x / 32;
    if (group == 0) {
        dealloc_registers<Streams::COPY_REGISTERS>();
        if (threadIdx.x == 0) produce_tiles(p, memory);
        if (threadIdx.x % 32 == 0 && warp > 0 && warp <= SUMS) add_tiles<IN_ORDER>(p, memory, warp - 1);
    } else {
        alloc_registers<Streams::REGISTERS>();
        multiply(p, memory, group - 1);
    }
}
