#pragma once
// One pass over keys for dQ, dK and dV (backward_once, backward_atomic). IN_ORDER: what each tile of keys adds to dQ is added in
// the order of the keys; else as it comes.

#include "backward_wgmma.cuh"

// ---- The sums in global memory, before and after. Tiles of keys add to dQ in chains, each with its own sums; parts of the queries
// ---- have their own sums of dK and dV.

constexpr int BC = ONCE_TILE, BR = 128;  // queries that are streamed, keys that are owned
// dQ's transpose is computed, in two parts: 64 columns of all queries of the tile, or of half of 128.
constexpr unsigned DQ_BYTES = BC * COLUMNS * 4;
constexpr int PART = BC * COLUMNS / 2 / 64 / 8;
static_assert(BC == 128 ? COLUMNS == 64 : COLUMNS == 128, "two parts of 64 columns");

typedef float Part[PART][4];  // of a tile of dQ
__device__ __forceinline__ int first_query_of(int group) { return BC == 128 ? group * 64 : 0; }
__device__ __forceinline__ int first_column_of(int group) { return BC == 128 ? 0 : group * 64; }

// SEQUENCES: of a head in all of them, as stats_rows has its rows.
__device__ __forceinline__ int tiles_of(const TiledParams& p) { return SEQUENCES ? p.stats_rows / BC : ceil_div(p.Nq, BC); }
__device__ __forceinline__ int sums_of(const TiledParams& p) { return p.batches * p.heads * tiles_of(p); }  // of a chain
// Where 16 bytes of a thread's part of dQ lie, in a tile of it.
__device__ __forceinline__ unsigned place(int group, int n) { return ((group * PART + n) * 128 + threadIdx.x % 128) * 16; }
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

// ROUNDED: the block whose keys are the last to add to a tile of queries brings the sum back, adds its part, and rounds dQ; no launch
// does after the pass. There is one chain, and each query sees a key. Whether these keys are the last of a tile:
constexpr bool ROUNDED = ONCE_ROUNDED;
__device__ __forceinline__ bool is_last(const TiledParams& p, int keys, int tile) {
    const int last = ceil_div(p.Nk, BR) - 1, seen = ((tile + 1) * BC - 1 + p.causal_offset) / BR;
    return ROUNDED && keys == (CAUSAL && tile < tiles_of(p) - 1 ? min(last, seen) : last);
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
    UNROLL for (int n = 0; n < PART; n += 2, row += 16) {
        unsigned x[4];
        UNROLL for (int i = 0; i < 4; i++)
            x[i] = transpose(pack(sum[n + i / 2][i % 2 * 2] * factor, sum[n + i / 2][i % 2 * 2 + 1] * factor));
        exchange_pairs(x);
        const int at = row + threadIdx.x % 4 / 2 * 8;
        if (at < rows && column < D)
            *(uint4*)(m.data + batch * m.batch + head * m.head + at * m.row + column) = make_uint4(x[0], x[1], x[2], x[3]);
    }
}

// What runs after, if anything. First blocks, unless the pass has rounded: chains' sums become dQ, the last ones first, which are in
// the L2 cache still. In order, a tile that no keys have been added to has not been written.
template <bool IN_ORDER> __device__ __forceinline__ void round_dq(const TiledParams& p) {
    const int sums = sums_of(p) - 1 - blockIdx.x;
    const int tiles = tiles_of(p), head = sums / tiles, tile = sums % tiles, group = threadIdx.x / 128;
    Part dQ;
    UNROLL for (int n = 0; n < PART; n++) UNROLL for (int e = 0; e < 4; e++) dQ[n][e] = 0;
    for (int chain = 0; chain < p.chains; chain++) {
        const long long at = (long long)chain * sums_of(p) + sums;
        if (IN_ORDER && !p.counts[at]) continue;
        const char* from = (const char*)p.dq_sums + at * DQ_BYTES;
        UNROLL for (int n = 0; n < PART; n++) {
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
    if (ROUNDED) add_parts(p, blockIdx.x);
    else if (blockIdx.x < sums_of(p)) round_dq<IN_ORDER>(p);
    else add_parts(p, blockIdx.x - sums_of(p));
}

// ---- The pass

extern __shared__ __align__(1024) float4 shared[];

using Streams = Geometry<true, 2, ONCE_TILE, ONCE_STAGES, false, ONCE_EARLY>;
constexpr int SUMS = ONCE_SUMS, ADDERS = ONCE_ADDERS;  // buffers for tiles of dQ, and threads that add these, by turns
// APART: a third group computes dQ. The two that own keys then have registers for K, and compute 64 queries of a tile at a time; dQ
// leaves in as many PIECES of a tile, each with its own buffer.
constexpr bool APART = ONCE_APART;
constexpr int HALF = 64, STEP = APART ? HALF : BC;  // queries, of a dS
constexpr int READERS = APART ? 1 : 2;  // groups that read dS, and write dQ
constexpr int PIECES = APART ? 2 : 1;
constexpr unsigned DS_BYTES = BR * STEP * 2, PIECE_BYTES = DQ_BYTES / PIECES;
static_assert(!APART || (COLUMNS == 64 && !SEQUENCES && !WINDOW), "registers, and what has been measured");
static_assert(!ROUNDED || (APART && SUMS == ADDERS), "the group for dQ alone waits for sums, and a buffer's thread brings them");
// Of a block's registers, 512 for each thread of a group: those of a group that owns keys, and of the one that computes dQ.
constexpr int KEY_REGISTERS = APART ? 208 : Streams::REGISTERS;
constexpr int DQ_REGISTERS = 512 - 2 * 208 - Streams::COPY_REGISTERS;
constexpr int THREADS_OF_ONCE = Streams::BLOCK + 128 * APART;
constexpr unsigned MORE_BARRIERS_AT = Streams::BARRIERS_AT + 16 * (2 + ONCE_STAGES);
constexpr unsigned DS_BARRIERS_AT = MORE_BARRIERS_AT + 16 * PIECES * ADDERS, NUMBERS_AT = DS_BARRIERS_AT + 16 * 2;
constexpr unsigned CLEARED_AT = NUMBERS_AT + 16;  // SEQUENCES: a barrier
constexpr unsigned DS_AT = ceil_div(CLEARED_AT + 8 * SEQUENCES, 1024) * 1024, DQ_AT = DS_AT + 2 * DS_BYTES;

struct Memory : Streams {
    __device__ __forceinline__ unsigned ds(unsigned n) const { return base + DS_AT + n % 2 * DS_BYTES; }
    __device__ __forceinline__ unsigned dq(unsigned n) const { return base + DQ_AT + n % (PIECES * SUMS) * PIECE_BYTES; }
    __device__ __forceinline__ unsigned task_full() const { return base + Streams::BARRIERS_AT; }  // a task, and its rows are there
    __device__ __forceinline__ unsigned task_empty() const { return task_full() + 8; }
    __device__ __forceinline__ unsigned dq_full(unsigned n) const { return base + MORE_BARRIERS_AT + n % (PIECES * ADDERS) * 16; }
    // Its buffer has been read. ROUNDED: the tile's buffers are its own; they have the sum where its keys are the last.
    __device__ __forceinline__ unsigned dq_empty(unsigned n) const { return dq_full(n) + 8; }
    // Until the buffer of the n-th piece of dQ is free.
    __device__ __forceinline__ void wait_for_room(unsigned n) const {
        if (ROUNDED) mbarrier_wait(dq_empty(n / PIECES * PIECES), n / (PIECES * SUMS) % 2);
        else if (SUMS == ADDERS) mbarrier_wait(dq_empty(n), n / (PIECES * SUMS) % 2 ^ 1);
        else if (n >= SUMS) mbarrier_wait(dq_empty(n - SUMS), (n - SUMS) / ADDERS % 2);
    }
    __device__ __forceinline__ unsigned ds_full(unsigned n) const { return base + DS_BARRIERS_AT + n % 2 * 16; }
    __device__ __forceinline__ unsigned ds_empty(unsigned n) const { return ds_full(n) + 8; }
    __device__ __forceinline__ unsigned number(unsigned n) const { return base + NUMBERS_AT + n % 2 * 8; }  // the n-th task's
    __device__ __forceinline__ unsigned cleared() const { return base + CLEARED_AT; }
    __device__ __forceinline__ void make_barriers() const {
        if (SEQUENCES) mbarrier_init<8>(cleared());
        mbarrier_init<1>(task_full()), mbarrier_init<(2 + APART) * 128 + ADDERS>(task_empty());
        for (int n = 0; n < PIECES * ADDERS; n++) mbarrier_init<4 * READERS>(dq_full(n)), mbarrier_init<1>(dq_empty(n));
        for (int n = 0; n < 2; n++) mbarrier_init<8>(ds_full(n)), mbarrier_init<4 * READERS>(ds_empty(n));
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

// ROUNDED: the n-th tile has its buffers; where its sum is given, once that has come.
__device__ __forceinline__ void make_room(const Memory& memory, unsigned n, const float* sum = nullptr) {
    const unsigned room = memory.dq_empty(PIECES * n);
    if (!sum) return mbarrier_arrive(room);
    mbarrier_expect<DQ_BYTES>(room);
    copy_bulk<DQ_BYTES>(memory.dq(PIECES * n), sum, room);
}
// The loop of a thread that adds tiles of dQ to the sums in device memory; in order, after the tiles before. The sums are there for
// the next block once the copy is done, which takes longer than a tile's products: hence two or three such threads.
template <bool IN_ORDER>
__device__ __forceinline__ void add_tiles(const TiledParams& p, const Memory& memory, unsigned mine) {
    unsigned added = 0;
    each_claimed(p, memory, [&](const Task& t) {
        mbarrier_arrive(memory.task_empty());  // with the task's number
        each_tile(t, [&](int head, int j) {
            const unsigned n = added++;
            if (n % ADDERS != mine) return;
            const int keys = t.row0 / BR, turn = turn_of(work_of(p, t), keys, j);
#if SEQUENCES
            const long long tile = (long long)head * tiles_of(p) + t.span.query_tile + j;
#else
            const long long tile = (long long)(keys % p.chains) * sums_of(p) + (t.batch * p.heads + head) * tiles_of(p) + j;
#endif
            const bool last = is_last(p, keys, j);
            if (ROUNDED && !last) make_room(memory, n);
            if (IN_ORDER) semaphore_wait(p.counts + tile, turn);
            if (last) make_room(memory, n, turn > 0 ? p.dq_sums + tile * (DQ_BYTES / 4) : nullptr);
            auto add = [&](unsigned piece, long long at) {
                mbarrier_wait(memory.dq_full(piece), piece / (PIECES * ADDERS) % 2);
                if (last) return;
                float* to = p.dq_sums + at * (PIECE_BYTES / 4);
                if (IN_ORDER && turn == 0) store_bulk<PIECE_BYTES>(to, memory.dq(piece));
                else add_bulk<PIECE_BYTES>(to, memory.dq(piece));
                bulk_commit();
                bulk_wait_read();
                if (!ROUNDED) mbarrier_arrive(memory.dq_empty(piece));
            };
            if (PIECES == 1) add(n, tile);
            else {
#pragma unroll 1
                for (int m = 0; m < PIECES; m++) add(PIECES * n + m, PIECES * tile + m);
            }
            if (!IN_ORDER || last) return;
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
// zeros. APART: of the n-th half of a tile.
template <int N> __device__ __forceinline__ void store_dS(const unsigned (&dS)[N][4], const Memory& memory, unsigned n, int group) {
    const unsigned lane = threadIdx.x % 32, chunk = threadIdx.x / 32 % 4 * 2 + lane / 8 % 2;
    const unsigned to = memory.ds(n) + group * STEP * 128 + (lane / 16 * 8 + lane % 8) * 128 + (chunk ^ lane % 8) * 16;
    mbarrier_wait(memory.ds_empty(n), n / 2 % 2 ^ 1);
    UNROLL for (int i = 0; i < N; i++) store_transposed(to + i * 16 * 128, dS[i]);
    fence_proxy_async();
    warp_arrives(memory.ds_full(n));
}
// A part of dQ^T = K^T dS^T.
__device__ __forceinline__ void issue_dQ(Part& dQ, const Memory& memory, unsigned n, int part) {
    mbarrier_wait(memory.ds_full(n), n / 2 % 2);
    wgmma_fence();
    const unsigned a = matrix_at(memory.own(0, 0) + first_column_of(part) * 128, 16);
    const unsigned b = matrix_at(memory.ds(n) + first_query_of(part) * 128, 16);
    UNROLL for (int i = 0; i < BR / 16; i++)
        wgmma_rows_of_a(dQ, descriptor(a + i / 4 * (2 * Streams::OWN_BYTES / 16) + i % 4 * 128),
                        descriptor(b + (i / 4 * STEP * 128 + i % 4 * 32) / 16), i > 0);
    wgmma_commit();
}
// dQ of the n-th tile, or piece, for the copy engine.
__device__ __forceinline__ void store_dQ(const Part& dQ, const Memory& memory, unsigned n, int part) {
    memory.wait_for_room(n);
    UNROLL for (int i = 0; i < PART; i++)
        store_shared(memory.dq(n) + place(part, i), dQ[i][0], dQ[i][1], dQ[i][2], dQ[i][3]);
}
__device__ __forceinline__ void signal_dQ(const Memory& memory, unsigned n) {
    fence_proxy_async();
    warp_arrives(memory.dq_full(n));
}

// The first query that sees a key: none sees a key past the end. (Its weights, of scores of 0, may be infinite.)
template <class Work> __device__ __forceinline__ int first_query(const Work& p, int key) {
    return MISSING && key >= p.Nk ? 1 << 30 : CAUSAL ? key - p.causal_offset : 0;
}

// dK and dV of a task, or its part of them.
__device__ __forceinline__ void leave_sums(const TiledParams& p, const Task& t, const Sums& dK, const Sums& dV, int row) {
    const auto& w = work_of(p, t);
    if (t.part < 0) {
        store(dK, w.dk, t.batch, t.own_head, row, w.Nk, p.scale);
        store(dV, w.dv, t.batch, t.own_head, row, w.Nk, 1);
    } else UNROLL for (int n = 0; n < COLUMNS / 8; n++) {
        const float *dk = dK[n], *dv = dV[n];
        *part_sums(p, t.part, t.row0 / BR, 0, n, threadIdx.x - 128) = float4{dk[0], dk[1], dk[2], dk[3]};
        *part_sums(p, t.part, t.row0 / BR, 1, n, threadIdx.x - 128) = float4{dv[0], dv[1], dv[2], dv[3]};
    }
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
            if (PART > 8) {  // dQ takes the registers of P
                wgmma_wait<1>();
                fence_registers(work.second);
            }
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
        leave_sums(p, t, work.first, work.second, row);
    });
}

// ---- APART

struct HalfTiles : Streams { static constexpr int BC = HALF; };

// S of 64 keys in registers and 64 queries.
__device__ __forceinline__ void issue_scores(Scores<HALF>& S, const Weights<64>& K, unsigned tile_at) {
    const unsigned b = matrix_at(tile_at, 16);
    UNROLL for (int n = 0; n < 4; n++) wgmma(S, K[n], descriptor(b + n * 32 / 16), n > 0);
    wgmma_commit();
}
// A group that owns keys. K comes from registers, V from shared memory: products of dV and dK are in front of those of scores, and the
// group waits for these anyway, but products of V from registers would keep it from the exponentials that it takes beside them.
__device__ __forceinline__ void multiply_halves(const TiledParams& p, const Memory& memory, int group) {
    const int column = threadIdx.x % 4 * 2;
    const int thread_row = group * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    unsigned consumed = 0;
    each_claimed(p, memory, [&](const Task& t) {
        const int row = t.row0 + thread_row;
        int full = CAUSAL ? ceil_div(max(0, t.row0 + group * 64 + 63 - p.causal_offset), HALF) : 0;  // halves below need a mask
        if (MISSING && t.row0 + group * 64 + 63 >= p.Nk) full = t.end * 2;
        Group<HalfTiles> work;
        clear(work.first), clear(work.second);
        unsigned left = t.heads * (t.end - t.first);
        memory.wait(consumed);
        Weights<64> K;
        const unsigned lane = threadIdx.x % 32, own_row = threadIdx.x / 32 % 4 * 16 + lane % 16;
        UNROLL for (int n = 0; n < 4; n++)
            load_matrices(K[n], memory.own(group, 0) + own_row * 128 + ((n * 2 + lane / 16) ^ lane % 8) * 16);
        wgmma_fence();
        issue_scores(work.S, K, memory.tile(consumed, 0));
        wgmma_wait<0>();
        fence_registers(work.S);
        each_tile(t, [&](int head, int j) {
            const bool more = --left > 0;  // else the scores that are issued are unused
            auto seen = [&](int key) -> Seen { return {first_query(p, key), 0}; };
            UNROLL for (int h = 0; h < 2; h++) {
                const unsigned half = h * HALF * 128, stats_at = memory.stats(consumed) + h * HALF * 8;
                const int from = j * BC + h * HALF + column;
                const bool masked = (CAUSAL || MISSING) && 2 * j + h < full;
                const Seen above = seen(row).after(from), below = seen(row + 8).after(from);
                wgmma_fence();
                issue_scores<HALF>(work.dP, memory.own(group, 1), memory.tile(consumed, 1) + half);
                work.weigh(p, stats_at, masked, above, below, {t.batch, head, row, from});
                round_weights<0, HALF / 8>(work.S, work.P);
                issue_sums<HALF, 0, HALF / 8>(work.second, work.P, memory.tile(consumed, 1) + half);
                wgmma_wait<1>();
                fence_registers(work.dP);
                work.template make_dS<0, HALF / 8>(stats_at, masked, above, below);
                if (h == 1 && more) memory.wait(consumed + 1);
                const unsigned next = h == 0 ? consumed : consumed + more, next_half = HALF * 128 - half;
                wgmma_fence();
                issue_scores(work.S, K, memory.tile(next, 0) + next_half);
                issue_sums<HALF, 0, HALF / 8>(work.first, work.dS, memory.tile(consumed, 0) + half);
                store_dS(work.dS, memory, 2 * consumed + h, group);
                wgmma_wait<0>();
                fence_registers(work.S);
                work.fence_sums();
            }
            if (more) memory.release(consumed);
            consumed++;
        });
        wgmma_wait<0>();
        memory.release(consumed - 1);
        mbarrier_arrive(memory.task_empty());  // every lane has read the task's number
        leave_sums(p, t, work.first, work.second, row);
    });
}
// To the n-th piece of dQ, of the last keys, the sum of those before, which has come to its buffer.
__device__ __forceinline__ void add_sum(Part& dQ, const Memory& memory, unsigned n) {
    UNROLL for (int i = 0; i < PART; i++) {
        const Four sum = load_shared(memory.dq(n) + place(0, i));
        UNROLL for (int e = 0; e < 4; e++) dQ[i][e] += sum.v[e];
    }
}
// The group that computes dQ, a piece of each half tile.
__device__ __forceinline__ void multiply_dQ(const TiledParams& p, const Memory& memory) {
    unsigned consumed = 0;
    each_claimed(p, memory, [&](const Task& t) {
        each_tile(t, [&](int head, int j) {
            const bool last = is_last(p, t.row0 / BR, j);
            UNROLL for (int h = 0; h < 2; h++) {
                const unsigned n = 2 * consumed + h;
                Part dQ;
                issue_dQ(dQ, memory, n, 0);
                memory.wait_for_room(n);
                wgmma_wait<0>();
                fence_registers(dQ);
                warp_arrives(memory.ds_empty(n));
                if (last) {
                    if (t.row0 > 0) add_sum(dQ, memory, n);
                    store_transposed(dQ, p.dq, t.batch, head, j * BC + h * HALF, p.Nq, p.scale, 0);
                } else store_dQ(dQ, memory, n, 0);
                signal_dQ(memory, n);
            }
            consumed++;
        });
        mbarrier_arrive(memory.task_empty());
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
        if (threadIdx.x % 32 == 0 && warp > 0 && warp <= ADDERS) add_tiles<IN_ORDER>(p, memory, warp - 1);
    } else if (APART && group == 3) {
        if constexpr (APART) {
            dealloc_registers<DQ_REGISTERS>();
            multiply_dQ(p, memory);
        }
    } else {
        alloc_registers<KEY_REGISTERS>();
        if constexpr (APART) multiply_halves(p, memory, group - 1);
        else multiply(p, memory, group - 1);
    }
}
