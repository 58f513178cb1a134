#pragma once
// One pass over keys for dQ, dK and dV (backward_once, backward_atomic). IN_ORDER: what each tile of keys adds to dQ is added in
// the order of the keys; else as it comes.

#include "backward_sums.cuh"

extern __shared__ __align__(1024) float4 shared[];

using Streams = Geometry<true, 2, ONCE_TILE, ONCE_STAGES, false, ONCE_EARLY>;
constexpr int SUMS = ONCE_SUMS;  // buffers for tiles of dQ
constexpr unsigned DS_BYTES = BR * BC * 2;
constexpr unsigned MORE_BARRIERS_AT = Streams::BARRIERS_AT + 16 * (2 + ONCE_STAGES);
constexpr unsigned DS_BARRIERS_AT = MORE_BARRIERS_AT + 16 * SUMS, NUMBERS_AT = DS_BARRIERS_AT + 16 * 2;
constexpr unsigned DS_AT = ceil_div(NUMBERS_AT + 16, 1024) * 1024, DQ_AT = DS_AT + 2 * DS_BYTES;

struct Memory : Streams {
    __device__ __forceinline__ unsigned ds(unsigned n) const { return base + DS_AT + n % 2 * DS_BYTES; }
    __device__ __forceinline__ unsigned dq(unsigned n) const { return base + DQ_AT + n % SUMS * DQ_BYTES; }
    __device__ __forceinline__ unsigned taken() const { return base + Streams::BARRIERS_AT; }  // a task, and its rows are there
    __device__ __forceinline__ unsigned done() const { return taken() + 8; }
    __device__ __forceinline__ unsigned dq_full(unsigned n) const { return base + MORE_BARRIERS_AT + n % SUMS * 16; }
    __device__ __forceinline__ unsigned dq_empty(unsigned n) const { return dq_full(n) + 8; }
    __device__ __forceinline__ unsigned ds_full(unsigned n) const { return base + DS_BARRIERS_AT + n % 2 * 16; }
    __device__ __forceinline__ unsigned ds_empty(unsigned n) const { return ds_full(n) + 8; }
    __device__ __forceinline__ unsigned number(unsigned n) const { return base + NUMBERS_AT + n % 2 * 8; }  // the n-th task's
    __device__ __forceinline__ void make_barriers() const {
        barrier_init<1>(taken()), barrier_init<8 * 32 + SUMS>(done());
        for (int n = 0; n < SUMS; n++) barrier_init<8>(dq_full(n)), barrier_init<1>(dq_empty(n));
        for (int n = 0; n < 2; n++) barrier_init<8>(ds_full(n)), barrier_init<8>(ds_empty(n));
        for (int n = 0; n < STAGES; n++) barrier_init<1>(full(n)), barrier_init<8>(empty(n));
        barriers_made();
    }
};

__device__ __forceinline__ int tasks_of(const BackwardParams& p) {
    const int heads = p.batches * p.kv_heads, split = heads - p.split_from;
    return (p.split_from + split * p.split_heads * p.split_rows) * ceil_div(p.Nk, BR);
}
// Calls work(task) for each task that this block's copying thread takes.
template <class Work> __device__ __forceinline__ void each_taken(const BackwardParams& p, const Memory& memory, Work work) {
    for (unsigned n = 0;; n++) {
        barrier_wait(memory.taken(), n % 2);
        const int task = __float_as_int(load_shared2(memory.number(n)).x);
        if (task >= tasks_of(p)) return;
        work(task_of<Streams>(p, task));
    }
}
// The tiles of a task: the last one first, of all heads, so that a causal task is behind those before it from its first tile on.
template <class Work> __device__ __forceinline__ void each_tile(const Task& t, Work work) {
    int head = t.head, j = t.end - 1;
#pragma unroll 1
    for (int left = t.heads * (t.end - t.first); left > 0; left--) {
        work(head, j);
        if (++head == t.head + t.heads) head = t.head, j--;
    }
}

__device__ __forceinline__ bool is_empty(const BackwardParams& p, int task) {  // a part of the rows that sees none of the keys
    const Task t = task_of<Streams>(p, task);
    return t.first >= t.end;
}

// What the copying thread does. The numbers of tasks pass to the others through shared memory.
__device__ __forceinline__ void take_tasks(const BackwardParams& p, const Memory& memory) {
    int* next = p.counts + p.chains * sums_of(p);
    unsigned asked = 0;
    for (unsigned n = 0;; n++) {
        int task = atomicAdd(next, 1);
        while (task < tasks_of(p) && is_empty(p, task)) task = atomicAdd(next, 1);
        barrier_wait(memory.done(), n % 2 ^ 1);
        store_shared(memory.number(n), __int_as_float(task), 0);
        if (task >= tasks_of(p)) return barrier_arrive(memory.taken());
        const Task t = task_of<Streams>(p, task);
        barrier_expect<4 * Streams::OWN_BYTES>(memory.taken());
        for (int g = 0; g < 2; g++) copy_own(p.dkdv_maps, memory, t, g, memory.taken());
        each_tile(t, [&](int head, int j) { copy_tile(p, p.dkdv_maps, memory, t, head, j, asked++); });
    }
}

// What a thread does for each buffer of dQ: it adds tiles to the sums in device memory; in order, when it is their turn. The
// sums are there for the next block once the copy is done, which takes longer than a tile's products: hence two such threads.
template <bool IN_ORDER>
__device__ __forceinline__ void add_tiles(const BackwardParams& p, const Memory& memory, unsigned mine) {
    unsigned added = 0;
    each_taken(p, memory, [&](const Task& t) {
        barrier_arrive(memory.done());  // with the task's number
        each_tile(t, [&](int head, int j) {
            const unsigned n = added++;
            if (n % SUMS != mine) return;
            const int keys = t.row0 / BR, turn = keys / p.chains;
            const long long tile = (long long)(keys % p.chains) * sums_of(p) + (t.batch * p.heads + head) * tiles_of(p) + j;
            if (IN_ORDER) wait_for_count(p.counts + tile, turn);
            barrier_wait(memory.dq_full(n), n / SUMS % 2);
            float* to = p.dq_sums + tile * (DQ_BYTES / 4);
            if (IN_ORDER && turn == 0) store_bulk<DQ_BYTES>(to, memory.dq(n));
            else add_bulk<DQ_BYTES>(to, memory.dq(n));
            end_stores();
            stores_have_read();
            barrier_arrive(memory.dq_empty(n));
            if (!IN_ORDER) return;
            stores_are_done();
            set_count(p.counts + tile, turn + 1);
        });
    });
}

// What all warps of a group have done: the lanes' writes to shared memory are there for the tensor cores and the copy engine.
__device__ __forceinline__ void warp_arrives(unsigned barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}
// A tile's dS for both groups, keys down, in rows of 64 queries. The n-th dS is that of the tile before the n-th; the 0-th is
// nobody's.
__device__ __forceinline__ void show_dS(const Weights<BC>& dS, const Memory& memory, unsigned n, int group) {
    const unsigned row = group * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, word = threadIdx.x % 4 * 4;
    barrier_wait(memory.ds_empty(n), n / 2 % 2 ^ 1);
    UNROLL for (int i = 0; i < BC / 8; i++) UNROLL for (int h = 0; h < 2; h++)
        store_shared(memory.ds(n) + i / 8 * BR * 128 + (row + 8 * h) * 128 + ((i % 8) ^ (row & 7)) * 16 + word,
                     dS[i / 2][i % 2 * 2 + h]);
    fence_async();
    warp_arrives(memory.ds_full(n));
}
// dQ = dS K: of a tile of 64 queries, each group 64 columns of 128; of 128 queries, 64 of them.
__device__ __forceinline__ void ask_dQ(Part& dQ, const Memory& memory, unsigned n, int group) {
    barrier_wait(memory.ds_full(n), n / 2 % 2);
    group_begin();
    const unsigned a = matrix_at(memory.ds(n) + (BC == 128 ? group * BR * 128 : 0), 16);
    const unsigned b = matrix_at(memory.own(0, 0) + (BC == 128 ? 0 : group * 64 * 128), 16);
    UNROLL for (int i = 0; i < BR / 16; i++)
        wgmma_both_rows(dQ, descriptor(a + i * 128), descriptor(b + i / 4 * (2 * Streams::OWN_BYTES / 16) + i % 4 * 128), i > 0);
    group_end();
}
// dQ of the n-th tile, for the copy engine.
__device__ __forceinline__ void put_dQ(const Part& dQ, const Memory& memory, unsigned n, int group) {
    barrier_wait(memory.dq_empty(n), n / SUMS % 2 ^ 1);
    UNROLL for (int i = 0; i < 8; i++)
        store_shared(memory.dq(n) + place(group, i), dQ[i][0], dQ[i][1], dQ[i][2], dQ[i][3]);
}
__device__ __forceinline__ void give_dQ(const Memory& memory, unsigned n) {
    fence_async();
    warp_arrives(memory.dq_full(n));
}

// The first query that sees a key: none sees one that is not there. (Its weights, of scores of 0, may be infinite.)
__device__ __forceinline__ int first_query(const BackwardParams& p, int key) {
    return MISSING && key >= p.Nk ? 1 << 30 : CAUSAL ? key - p.causal_offset : 0;
}

__device__ __forceinline__ void multiply(const BackwardParams& p, const Memory& memory, int group) {
    const int column = threadIdx.x % 4 * 2;
    const int thread_row = group * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    unsigned used = 0;
    Weights<BC> none;
    UNROLL for (int n = 0; n < BC / 16; n++) UNROLL for (int e = 0; e < 4; e++) none[n][e] = 0;
    show_dS(none, memory, 0, group);
    each_taken(p, memory, [&](const Task& t) {
        const int row = t.row0 + thread_row;
        // Tiles below `full` need a mask: those at the diagonal, and all of them where keys are missing.
        int full = CAUSAL ? ceil_div(max(0, t.row0 + group * 64 + 63 - p.causal_offset), BC) : 0;
        if (MISSING && t.row0 + group * 64 + 63 >= p.Nk) full = t.end;
        Group<Streams> work;
        clear(work.first), clear(work.second);
        const unsigned first = used;
        unsigned left = t.heads * (t.end - t.first);
        memory.wait(used);
        group_begin();
        ask_scores<BC>(work.S, memory.own(group, 0), memory.tile(used, 0));
        group_wait<0>();
        keep(work.S);
        each_tile(t, [&](int, int j) {
            group_begin();
            ask_scores<BC>(work.dP, memory.own(group, 1), memory.tile(used, 1));
            const int edge = first_query(p, row) - j * BC - column, edge_below = first_query(p, row + 8) - j * BC - column;
            work.finish(p, memory, used, (CAUSAL || MISSING) && j < full, edge, edge_below);
            show_dS(work.dS, memory, used + 1, group);
            // dQ is that of the tile before, of which the other group's dS, too, has been there for long. A task's first one is
            // nobody's: a branch around products would make them wait for each other.
            Part dQ;
            ask_dQ(dQ, memory, used, group);
            const bool more = --left > 0;  // else the scores that are asked for are nobody's
            group_wait<1>();
            work.keep_sums();
            group_wait<0>();
            keep(dQ);
            if (used != first) put_dQ(dQ, memory, used - 1, group);  // before products that need all of shared memory's rate
            if (more) memory.wait(used + 1);
            group_begin();
            ask_scores<BC>(work.S, memory.own(group, 0), memory.tile(used + more, 0));
            if (more) memory.release(used);
            warp_arrives(memory.ds_empty(used));
            if (used != first) give_dQ(memory, used - 1);
            group_wait<0>();
            keep(work.S);
            used++;
        });
        Part dQ;
        ask_dQ(dQ, memory, used, group);
        group_wait<0>();
        keep(dQ);
        put_dQ(dQ, memory, used - 1, group);
        give_dQ(memory, used - 1);
        memory.release(used - 1);
        barrier_arrive(memory.done());  // every lane has read the task's number
        if (t.part < 0) {
            store(work.first, p.dk, t.batch, t.own_head, row, p.Nk, p.scale);
            store(work.second, p.dv, t.batch, t.own_head, row, p.Nk, 1);
        } else UNROLL for (int n = 0; n < COLUMNS / 8; n++) {
            const float *dk = work.first[n], *dv = work.second[n];
            *part_sums(p, t.part, t.row0 / BR, 0, n, threadIdx.x - 128) = float4{dk[0], dk[1], dk[2], dk[3]};
            *part_sums(p, t.part, t.row0 / BR, 1, n, threadIdx.x - 128) = float4{dv[0], dv[1], dv[2], dv[3]};
        }
    });
}

template <bool IN_ORDER> __device__ __forceinline__ void one_pass(const BackwardParams& p) {
    const Memory memory{{shared_start(shared)}};
    if (threadIdx.x == 0) memory.make_barriers();
    __syncthreads();
    const int group = group_number(), warp = threadIdx.x / 32;
    if (group == 0) {
        fewer_registers<Streams::COPY_REGISTERS>();
        if (threadIdx.x == 0) take_tasks(p, memory);
        if (threadIdx.x % 32 == 0 && warp > 0 && warp <= SUMS) add_tiles<IN_ORDER>(p, memory, warp - 1);
    } else {
        more_registers<Streams::REGISTERS>();
        multiply(p, memory, group - 1);
    }
}
