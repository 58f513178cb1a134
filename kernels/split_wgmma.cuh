#pragma once
// The mainloop of split and split8 on Hopper (compute capability 9.0): persistent blocks of a producer and of consumers in
// ping-pong.
//
// A block has GROUPS consumer warpgroups with 64 rows each, and a producer warp, of which one thread issues bulk copies of tiles of K
// and V into a ring of STAGES buffers. A consumer issues its next scores and P V of the last ones (wgmma), hands the turn to the
// next consumer, and takes exponentials of the scores that are complete: meanwhile the tensor cores compute for the others. INT8:
// the corrections of the scores (integers.cuh) are issued one tile ahead; the sums of hi hi begin with them.

#include "exponentials.cuh"
#include "producers.cuh"
#include "promotion.cuh"
#include "stamps.cuh"
#include "warpgroup.cuh"

#ifndef IN_ORDER
#define IN_ORDER 0
#endif

// ---- Shared memory: two mbarriers for each buffer of the ring; the block's info; two mbarriers of Q; those of producers; the ring;
// ---- ones for the 16 keys of a product; O, l and BIAS - m of the keys before; Q.

constexpr unsigned BARRIERS_AT = 0, Q_BARRIERS_AT = INFO_AT + INFO_BYTES, ARRIVING_AT = Q_BARRIERS_AT + 16;
constexpr unsigned RING_AT = 1024, ONES_AT = RING_AT + STAGES * STAGE;
constexpr unsigned SUMS_AT = ONES_AT + ONES_BYTES, Q_AT = SUMS_AT + SUMS_BYTES;

static_assert(GROUPS > 0 && !INBLOCK, "a plan for persistent blocks");
static_assert(ARRIVING_AT + THREADS / 32 * 3 * 8 <= RING_AT, "barriers lie before the ring");
static_assert(MI == 1 && WORKERS == 128 * GROUPS && BR == 64 * GROUPS, "a consumer warpgroup for each 64 rows, and a producer");
static_assert(ONES_AT % 1024 == 0 && Q_AT % 1024 == 0, "tiles begin at multiples of 1024");
static_assert(SUB == BC, "a tile's scores are in registers at once");
static_assert(!WINDOW || BR + BC <= PROMOTION, "all rows have begun before sums are promoted");

// The ring: tile n lies in buffer n % STAGES.
struct Tiles {
    unsigned base;
    __device__ __forceinline__ unsigned at(unsigned n) const { return base + RING_AT + n % STAGES * STAGE; }
    __device__ __forceinline__ unsigned full(unsigned n) const { return base + BARRIERS_AT + n % STAGES * 16; }
    __device__ __forceinline__ unsigned empty(unsigned n) const { return full(n) + 8; }
    __device__ __forceinline__ void prepare() const {
        for (int n = 0; n < STAGES; n++) mbarrier_init<1>(full(n)), mbarrier_init<4 * GROUPS>(empty(n));
        fence_mbarrier_init();
    }
    __device__ __forceinline__ void fetch(const char* from, unsigned n) const {
        mbarrier_wait(empty(n), n / STAGES % 2 ^ 1);
        mbarrier_expect<STAGE>(full(n));
        copy_bulk<STAGE>(at(n), from, full(n));
    }
    __device__ __forceinline__ void wait(unsigned n) const { mbarrier_wait(full(n), n / STAGES % 2); }
    __device__ __forceinline__ void release(unsigned n) const {
        if (threadIdx.x % 32 == 0) mbarrier_arrive(empty(n));
    }
};

// ---- The producer: it issues the copies of each unit's tiles, as soon as their buffers are empty.

__device__ __forceinline__ void fetch_tiles(const Params& p, const Tiles& tiles, const Queries& queries) {
    unsigned issued = 0;
#pragma unroll 1
    for (unsigned n = 0;; n++) {
        const Work t = queries.wait_for_work(p, n);
        queries.release();
        if (!t.any) return;
        const char* first = p.tiles + (long long)(t.batch * ceil_div(p.Nk, BC) + t.first_key / BC) * STAGE;
        const int count = ceil_div(t.last_key - t.first_key, BC);
#if CONVERTING
        if (t.batch >= block_info(FIRST)) semaphore_wait(count_of(p, t.batch), ceil_div(p.Nk, BC));
#endif
#pragma unroll 1  // its registers are few
        for (int j = 0; j < count; j++, issued++) {
            BEGINS(COPYING, issued);
            tiles.fetch(first + j * (long long)STAGE, issued);
            ENDS(COPYING, issued);
        }
    }
}

// ---- The products. Descriptors are sums of 32 bits: the upper half is a constant.

__device__ __forceinline__ unsigned long long descriptor(unsigned low) { return matrix_at(0) | low; }

#if INT8
struct Corrections { int of[SL][4]; };
// Q: hi to registers, integers to shared memory at `to`, for a warpgroup whose named barrier is `id`.
__device__ __forceinline__ Largest load_queries(RowState& r, const Params&, const float* q, int rows_left, unsigned to, int id) {
    warpgroup_sync(id);  // all products with the integers of the unit before are complete
    const Largest found = each_query(q, rows_left, [&](int i, int step, int e, float2 x) {
        const HiIntegers both = split_integers(x.x, x.y);
        const unsigned row = warp_row() % 64 + threadIdx.x % 32 / 4 + e % 2 * 8, c = step * 16 + threadIdx.x % 4 * 2 + e / 2 * 8;
        r.Q[0][i][step][e] = both.hi;
        store_shared(to + swizzle_integer(row, c, false), (unsigned short)both.lo);
        store_shared(to + swizzle_integer(row, c, true), (unsigned short)both.whole);
    });
    fence_proxy_async();
    warpgroup_sync(id);
    return found;
}
__device__ __forceinline__ void fence_registers(Corrections& X) { fence_registers(X.of); }
__device__ __forceinline__ void issue_corrections(Corrections& X, unsigned k_at, unsigned q_at) {
    const unsigned k = (k_at + PIECE) >> 4, q = q_at >> 4;
    UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 4; e++) X.of[n][e] = __float_as_int(INTEGERS);
    fence_registers(X.of);
    wgmma_fence();
    UNROLL for (int n = 0; n < STEPS; n++) wgmma(X.of, descriptor(q + n * 2), descriptor(k + n * 2));
    wgmma_commit();
}
// The sums of hi hi begin with the corrections, which are complete.
__device__ __forceinline__ void begin_scores(Scores S, Corrections& X) {
    fence_registers(X.of);
    UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 4; e++)
        S[0][n][e] = of_integers(X.of[n][e]);
    fence_registers(S[0]);
}
__device__ __forceinline__ void issue_scores(const RowState& r, Scores S, unsigned k_at) {
    wgmma_fence();
    UNROLL for (int n = 0; n < STEPS; n++) wgmma(S[0], r.Q[0][0][n], descriptor((k_at >> 4) + n * 2));
    wgmma_commit();
}
#else
struct Corrections {};
__device__ __forceinline__ void fence_registers(const Corrections&) {}
__device__ __forceinline__ Largest load_queries(RowState& r, const Params& p, const float* q, int rows_left, unsigned, int) {
    return load_halves(r, q, rows_left, p.scale * LOG2E);
}
__device__ __forceinline__ void issue_corrections(const Corrections&, unsigned, unsigned) {}
__device__ __forceinline__ void begin_scores(const Scores, const Corrections&) {}
__device__ __forceinline__ void issue_scores(const RowState& r, Scores S, unsigned k_at) {
    const unsigned k = k_at >> 4;
    wgmma_fence();
    UNROLL for (int n = 0; n < STEPS; n++) {
        wgmma(S[0], r.Q[1][0][n], descriptor(k + n * 2), n > 0);
        wgmma(S[0], r.Q[0][0][n], descriptor(k + (n * 32 + PIECE) / 16));
    }
    UNROLL for (int n = 0; n < STEPS; n++) wgmma(S[0], r.Q[0][0][n], descriptor(k + n * 2));
    wgmma_commit();
}
#endif
__device__ __forceinline__ void issue_values(RowState& r, const Probabilities& P, unsigned v_at, unsigned ones) {
    const unsigned v = v_at >> 4 | (ones - v_at) >> 4 << 16;
    wgmma_fence();  // without it, the compiler serialises products that a wait separates (C7520)
    UNROLL for (int j = 0; j < SL / 2; j++)
        wgmma_rows(r.O[0], r.l[0], P.piece[0][j][0], descriptor(v + j * (ROW - (ROW << 16))));
    wgmma_commit();
}

// ---- The softmax

__device__ __forceinline__ void multiply(Scores S, float unit) {
    UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 4; e++) S[0][n][e] *= unit;
}
// As end_scores, but that the compiler sees no sum as an integer.
__device__ __forceinline__ int add_base(const RowState& r, Scores S, float unit = 1) {
    int top[2] = {0, 0};
    UNROLL for (int n = 0; n < SL; n++) UNROLL for (int h = 0; h < 2; h++) {
        UNROLL for (int e = 2 * h; e < 2 * h + 2; e++) S[0][n][e] = fmaf(S[0][n][e], unit, r.base[0][h]);
        raise_bits(top[h], S[0][n][2 * h], S[0][n][2 * h + 1]);
    }
    return max(top[0], top[1]);
}
// POLYNOMIAL of 16 by polynomial, where exponentials load their unit as much as products load the tensor cores. IN_ORDER: so many
// blocks of 8 keys before the next ones; 0: in the compiler's order.
__device__ __forceinline__ void exponentiate(Scores S) {
    UNROLL for (int n = 0; n < SL; n++) {
        UNROLL for (int e = 0; e < 4; e++)
            S[0][n][e] = by_polynomial(n * 4 + e, POLYNOMIAL) ? exp2_polynomial(S[0][n][e]) : exp2_fast(S[0][n][e]);
        if (IN_ORDER && ((n + 1) % (IN_ORDER + !IN_ORDER) == 0 || n + 1 == SL)) keep_order(S[0]);
    }
}
__device__ __forceinline__ void round_weights(const Scores S, Probabilities& P) {
    UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 2; e++)
        P.piece[0][n / 2][0][n % 2 * 2 + e] = halves(S[0][n][2 * e], S[0][n][2 * e + 1]);
}
__device__ __forceinline__ float row_top(const Scores S, int h) {
    float top = MINUS_INFINITY;
    UNROLL for (int n = 0; n < SL; n++) top = fmaxf(top, fmaxf(S[0][n][2 * h], S[0][n][2 * h + 1]));
    return lanes_max<4>(top);
}
// The maximum becomes m, before the first weights.
__device__ __forceinline__ void begin_m(RowState& r, const Scores S) {
    UNROLL for (int h = 0; h < 2; h++) {
        const float top = row_top(S, h);
        r.base[0][h] = CAUSAL && top == MINUS_INFINITY ? 0 : BIAS - top;  // no key: its P are 0
    }
}
// As rescale, in two steps: O and l, to which the tensor cores still add, follow later.
struct Rescale {
    float by[2];
    bool due;
    __device__ __forceinline__ void raise_m(RowState& r, Scores S, const Mask& mask) {
        UNROLL for (int h = 0; h < 2; h++) {
            const float top = row_top(S, h), old = r.base[0][h];
            const bool begins = mask.begins(fragment_row(2 * h));  // O and l are 0, and 2^change may be inf
            if (!CAUSAL || top > MINUS_INFINITY)  // else no key: its base stays
                r.base[0][h] += begins ? BIAS - top : fminf(0, BIAS - top);
            const float change = r.base[0][h] - old;
            by[h] = begins ? 0 : exp2_fast(change);
            UNROLL for (int n = 0; n < SL; n++) S[0][n][2 * h] += change, S[0][n][2 * h + 1] += change;
        }
    }
    __device__ __forceinline__ void apply_to(RowState& r) const {
        UNROLL for (int h = 0; h < 2; h++) {
            r.l[0][2 * h] *= by[h];
            UNROLL for (int n = 0; n < NO; n++) r.O[0][n][2 * h] *= by[h], r.O[0][n][2 * h + 1] *= by[h];
        }
    }
};

// ---- A consumer: a warpgroup, and its 64 rows of unit after unit

// Whether the first products of a unit are issued before O of the unit before is stored, which then overlaps. With fp16 corrections,
// that was slower.
constexpr bool EARLY = INT8 && Q_AHEAD;

struct Consumer {
    const Params& p;
    const Tiles& tiles;
    const Queries& queries;
    const int id;  // from 1 on; also of the named barrier at which it waits for its turn
    unsigned consumed = 0;  // tiles
    RowState r;
    Scores S;
    Corrections X;

    __device__ __forceinline__ unsigned q_at(unsigned n) const { return queries.lo(n) + (id - 1) * 64 * ROW; }
    __device__ __forceinline__ Mask mask_of(const Task& t) const {
        return mask_at(p, t.row0 + warp_row(), t.first_key, t.last_key - t.first_key);
    }
    // Loads Q of unit n from global memory.
    __device__ __forceinline__ void load_q(unsigned n, const Task& t) {
        const int row0 = t.row0 + warp_row();
        const unsigned recorded = WarpAbsmax::recorded(p.absmax);
        WarpAbsmax found;
        found.add(Q_TOP, load_queries(r, p, row_of(p.q, t.batch, row0), p.Nq - row0, q_at(n), GROUPS + id));
        found.record(p.absmax, recorded);  // at once: no register is left to hold it
    }
    // Loads Q of unit n, from shared memory if it was `produced` there; issues the first scores and the corrections of the tile
    // after. If there is no unit n, these are the last ones of the unit before once more, unused: the compiler would serialise
    // products that are issued on one branch alone.
    __device__ __forceinline__ void begin_unit(unsigned n, const Work& t, bool produced) {
#if Q_AHEAD
        if (produced) {
            if (!EARLY || t.any) queries.load(r, n);  // else nobody has stored it
        } else
#endif
            load_q(n, t);
        queries.release();
        const unsigned first = t.any ? consumed : consumed - 1;
        const unsigned corrected = first + (INT8 && t.any && t.last_key - t.first_key > BC);
        const unsigned q = q_at(t.any ? n : n - 1);
        tiles.wait(first); BEGINS(SCORING, first);
        issue_corrections(X, tiles.at(first), q);
        wgmma_wait<0>();
        begin_scores(S, X);
        issue_scores(r, S, tiles.at(first));
        tiles.wait(corrected);
        issue_corrections(X, tiles.at(corrected), q);
    }
    __device__ __forceinline__ void wait_for_first() {
        wgmma_wait<0>();
        fence_registers(S[0]), fence_registers(X); ENDS(SCORING, consumed);
    }
    // Computes a unit whose first scores are complete.
    __device__ __forceinline__ void compute_unit(unsigned n, const Mask& mine) {
        const unsigned ones = tiles.base + ONES_AT, q = q_at(n);
        const Sums sums{tiles.base + SUMS_AT};
        Probabilities P;
        auto mask_tail = [&](int j) {
            const Mask mask = mine.after(j * BC);
            if (!mask.is_full(BC, 16)) apply(mask, (Scores*)&S);
            return mask;
        };
        zero(r);
        if (INT8) multiply(S, unit_of(p));
        mask_tail(0); BEGINS(WEIGHING, consumed);
        begin_m(r, S);
        add_base(r, S);
        exponentiate(S);
        round_weights(S, P); ENDS(WEIGHING, consumed);
        begin_scores(S, X);
#pragma unroll 1
        for (int j = 1; j * BC < mine.keys; j++) {
            const unsigned last = tiles.at(consumed++);
            // The tile whose corrections are computed meanwhile: the next one; behind the last tile its own again, unused.
            const unsigned corrected = consumed + (INT8 && (j + 1) * BC < mine.keys);
            tiles.wait(corrected);
            pingpong_wait(id); BEGINS(SCORING, consumed); BEGINS(ADDING, consumed - 1);
            fence_registers(r);
            issue_scores(r, S, tiles.at(consumed));
            issue_values(r, P, last + 2 * PIECE, ones);
            issue_corrections(X, tiles.at(corrected), q);
            pingpong_arrive(id % GROUPS + 1);
            wgmma_wait<1 + INT8>();
            fence_registers(S[0]); ENDS(SCORING, consumed); BEGINS(WEIGHING, consumed);
            const int top = add_base(r, S, unit_of(p));
            const Mask mask = mask_tail(j);
            Rescale rescale;
            rescale.due = mask.begins_any(BC, 16) || outgrown(top);
            if (__builtin_expect(rescale.due, 0)) rescale.raise_m(r, S, mask);
            exponentiate(S);
            wgmma_wait<0>();
            fence_registers(r); ENDS(ADDING, consumed - 1);
            tiles.release(consumed - 1);
            if (__builtin_expect(rescale.due, 0)) rescale.apply_to(r);
            round_weights(S, P);
            begin_scores(S, X);
            if (j % (PROMOTION / BC) == 0) sums.promote(r, j > PROMOTION / BC);
            ENDS(WEIGHING, consumed);
        }
        BEGINS(ADDING, consumed); fence_registers(r);
        issue_values(r, P, tiles.at(consumed) + 2 * PIECE, ones);
        wgmma_wait<0>();
        fence_registers(r); ENDS(ADDING, consumed);
        tiles.release(consumed++);
        if (mine.keys > PROMOTION) sums.add_to(r);
    }
    // The epilogue.
    __device__ __forceinline__ void store_unit(unsigned n) {
        const Work t = work_at(p, n);  // once more: registers to hold it are scarce
        const int row0 = t.row0 + warp_row();
        const long long row = partial_row(p, t, row0);
        float* to = p.splits > 1 ? p.partial_o + row * D : row_of(p.o, t.batch, row0);
        if (BALANCED && t.continued) fixup(r, p, row0, p.row_stats + row, to);
        store(r, p, t.batch, row0, to, p.row_stats + row, false, p.splits == 1 && (!BALANCED || t.last_key == p.Nk));
    }
    __device__ __forceinline__ void run() {
        if (id == GROUPS) pingpong_arrive(1);
        if (EARLY) begin_unit(0, work_at(p, 0), false), wait_for_first();
#pragma unroll 1
        for (unsigned n = 0;; n++) {
            const Work t = EARLY ? work_at(p, n) : queries.wait_for_work(p, n);
            if (!t.any) return;
            const Mask mine = mask_of(t);
            if (CAUSAL && mine.is_empty()) return store_empty(p, t);
            if (!EARLY) begin_unit(n, t, Q_AHEAD && n > 0), wait_for_first();
            compute_unit(n, mine);
            if (EARLY) begin_unit(n + 1, queries.wait_for_work(p, n + 1), true);
            store_unit(n);
            if (EARLY) wait_for_first();
            if (MOST_BLOCKS == 0 && !INT8) return;  // so the compiler knows that j is the same in all lanes; INT8 would spill
        }
    }
};

// ---- The launches

// The launch before: K and V of the first batches become tiles, and counters are reset.
__device__ __forceinline__ void convert_first(const Params& p) {
    ONLY_IF_CHOSEN(p);
    griddep_launch();
    if (BALANCED) reset_counters(p);
    convert(p, [](const Params& p) { return producer_blocks_of(p).first; });
}

// A persistent block: unit after unit of work; some blocks convert K and V of later batches before.
__device__ __forceinline__ void attend(const Params& p) {
    ONLY_IF_CHOSEN(p);
    const Tiles tiles{shared_start(shared)};
    const Queries queries{tiles.base + Q_AT, tiles.base + Q_BARRIERS_AT};
    const int group = warpgroup_index();
    griddep_launch();
    if (BALANCED) griddep_wait();  // before block numbers are counted
    if (threadIdx.x == 0) tiles.prepare(), queries.prepare(), begin_block_info(p);
    if (Q_AHEAD && threadIdx.x < 32) {
        __syncwarp();
        if (const Work t = find_work(p, 0); threadIdx.x == 0) store_work(0, t);
    }
#if CONVERTING
    __syncthreads();
    if (block_number() < block_info(PRODUCER_BLOCKS)) {
        convert_later(p, block_info(FIRST), Arriving<Q_AT + Q_BYTES - RING_AT>(tiles.base + RING_AT, tiles.base + ARRIVING_AT));
        __syncthreads();
    }
#endif
    make_ones(tiles.base + ONES_AT);
    fence_shared();
    if (group == GROUPS) {
        dealloc_registers<COPY_REGISTERS>();
        if (threadIdx.x == WORKERS) griddep_wait(), fetch_tiles(p, tiles, queries);
#if Q_AHEAD
        if (threadIdx.x >= WORKERS + 32) queries.produce_all(p);
#endif
        return;
    }
    alloc_registers<REGISTERS>();
    Consumer{p, tiles, queries, 1 + group}.run();
}
