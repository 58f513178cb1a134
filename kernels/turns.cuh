#pragma once
// Attention by warpgroups that take turns (compute capability 9.0): GROUPS groups of four warps have 64 rows each, and one warp
// more asks for tiles of K and V.
//
// A group asks for its next scores and for P V of the last ones, passes on the turn, and takes exponentials of the scores that
// have come: meanwhile the tensor cores compute for another group.

#include "converters.cuh"
#include "hopper.cuh"
#include "queries.cuh"
#include "scores.cuh"
#include "sums.cuh"

#if GROUPS
// Shared memory: two barriers for each tile of the ring; what a block keeps; two barriers of Q; those of converters; STAGES tiles
// of K and V, the ring; ones for the 16 keys of a product; O, l and BIAS - m of the keys before; Q.
constexpr unsigned BARRIERS_AT = 0, Q_BARRIERS_AT = NUMBER_AT + KEPT_BYTES, ARRIVING_AT = Q_BARRIERS_AT + 16;
constexpr unsigned RING_AT = 1024, ONES_AT = RING_AT + STAGES * STAGE;
constexpr unsigned SUMS_AT = ONES_AT + ONES_BYTES, Q_AT = SUMS_AT + SUMS_BYTES;

static_assert(ARRIVING_AT + THREADS / 32 * 3 * 8 <= RING_AT, "barriers lie before the ring");
static_assert(MI == 1 && WORKERS == 128 * GROUPS && BR == 64 * GROUPS, "a group of four warps for each 64 rows, one that copies");
static_assert(ONES_AT % 1024 == 0 && Q_AT % 1024 == 0, "tiles begin at multiples of 1024");
static_assert(SUB == BC, "a tile's scores are in registers at once");

// Tile n lies in buffer n % STAGES.
struct Tiles {
    unsigned base;
    __device__ __forceinline__ unsigned at(unsigned n) const { return base + RING_AT + n % STAGES * STAGE; }
    __device__ __forceinline__ unsigned full(unsigned n) const { return base + BARRIERS_AT + n % STAGES * 16; }
    __device__ __forceinline__ unsigned empty(unsigned n) const { return full(n) + 8; }
    __device__ __forceinline__ void prepare() const {
        for (int n = 0; n < STAGES; n++) barrier_init<1>(full(n)), barrier_init<4 * GROUPS>(empty(n));
        barriers_made();
    }
    __device__ __forceinline__ void fetch(const char* from, unsigned n) const {
        barrier_wait(empty(n), n / STAGES % 2 ^ 1);
        barrier_expect<STAGE>(full(n));
        copy_bulk<STAGE>(at(n), from, full(n));
    }
    __device__ __forceinline__ void wait(unsigned n) const { barrier_wait(full(n), n / STAGES % 2); }
    __device__ __forceinline__ void release(unsigned n) const {
        if (threadIdx.x % 32 == 0) barrier_arrive(empty(n));
    }
};

// What the copying warp does: it asks for the tiles of each part, as soon as their buffers are empty.
__device__ __forceinline__ void fetch_tiles(const Params& p, const Tiles& tiles, const Queries& queries) {
    unsigned asked = 0;
#pragma unroll 1
    for (unsigned n = 0;; n++) {
        const TaskPart t = queries.wait_for_part(p, n);
        queries.release();
        if (!t.any) return;
        const char* first = p.tiles + (long long)(t.batch * ceil_div(p.Nk, BC) + t.first_key / BC) * STAGE;
        const int count = ceil_div(t.last_key - t.first_key, BC);
#if CONVERTING
        if (t.batch >= kept(FIRST)) wait_for_count(count_of(p, t.batch), ceil_div(p.Nk, BC));
#endif
#pragma unroll 1  // its registers are few
        for (int j = 0; j < count; j++, asked++) {
            BEGINS(COPYING, asked);
            tiles.fetch(first + j * (long long)STAGE, asked);
            ENDS(COPYING, asked);
        }
    }
}

// Whether the first products of a part are asked for before O of the part before is stored, which then takes no time: with fp16
// corrections, that was slower.
constexpr bool EARLY = INT8 && Q_AHEAD;

// A group of four warps and what it has at work: 64 rows of part after part.
struct Group {
    const Params& p;
    const Tiles& tiles;
    const Queries& queries;
    const int turn;
    unsigned used = 0;  // tiles that have passed
    RowState r;
    Scores S;
    Corrections X;

    __device__ __forceinline__ unsigned q_at(unsigned n) const { return queries.second(n) + (turn - 1) * 64 * ROW; }
    __device__ __forceinline__ Mask mask_of(const Task& t) const {
        return mask_at(p, t.row0 + warp_row(), t.first_key, t.last_key - t.first_key);
    }
    // Q of part n, from device memory.
    __device__ __forceinline__ void load_queries(unsigned n, const Task& t) {
        const int row0 = t.row0 + warp_row();
        const unsigned before = WarpAbsmax::before(p.absmax);
        WarpAbsmax found;
        found.add(Q_TOP, bring_queries(r, p, row_of(p.q, t.batch, row0), p.Nq - row0, q_at(n), GROUPS + turn));
        found.note(p.absmax, before);  // at once: no register is left to keep it in
    }
    // Takes Q of part n, if it was `brought`, else loads it; asks for the first scores and for the corrections of the tile after.
    // If there is no such part, these are the last ones of the part before again, unused: products are asked for on every way.
    __device__ __forceinline__ void begin_part(unsigned n, const TaskPart& t, bool brought) {
#if Q_AHEAD
        if (brought) queries.take(r, n);
        else
#endif
            load_queries(n, t);
        queries.release();
        const unsigned first = t.any ? used : used - 1, corrected = first + (INT8 && t.any && t.last_key - t.first_key > BC);
        const unsigned q = q_at(t.any ? n : n - 1);
        tiles.wait(first); BEGINS(SCORING, first);
        ask_corrections(X, tiles.at(first), q);
        group_wait<0>();
        take_corrections(S, X);
        ask_scores(r, S, tiles.at(first));
        tiles.wait(corrected);
        ask_corrections(X, tiles.at(corrected), q);
    }
    __device__ __forceinline__ void await_first() {
        group_wait<0>();
        keep(S[0]), keep(X); ENDS(SCORING, used);
    }
    // Attends to a part whose first scores are there.
    __device__ __forceinline__ void attend_part(unsigned n, const Mask& mine) {
        const unsigned ones = tiles.base + ONES_AT, q = q_at(n);
        const Sums sums{tiles.base + SUMS_AT};
        Probabilities P;
        auto mask_tail = [&](int j) {
            if (const Mask mask = mine.after(j * BC); !mask.is_full(BC)) apply(mask, (Scores*)&S);
        };
        zero(r);
        if (INT8) multiply(S, unit_of(p));
        mask_tail(0); BEGINS(WEIGHING, used);
        begin_m(r, S);
        add_base(r, S);
        exponentiate(S);
        round_weights(S, P); ENDS(WEIGHING, used);
        take_corrections(S, X);
#pragma unroll 1
        for (int j = 1; j * BC < mine.keys; j++) {
            const unsigned last = tiles.at(used++);
            // The tile whose corrections are computed meanwhile: the next one; behind the last tile its own again, unused.
            const unsigned corrected = used + (INT8 && (j + 1) * BC < mine.keys);
            tiles.wait(corrected);
            wait_for_turn(turn); BEGINS(SCORING, used); BEGINS(ADDING, used - 1);
            keep(r);
            ask_scores(r, S, tiles.at(used));
            ask_values(r, P, last + 2 * PIECE, ones);
            ask_corrections(X, tiles.at(corrected), q);
            give_turn(turn % GROUPS + 1);
            group_wait<1 + INT8>();
            keep(S[0]); ENDS(SCORING, used); BEGINS(WEIGHING, used);
            const int top = add_base(r, S, unit_of(p));
            mask_tail(j);
            Shrink shrink;
            shrink.due = outgrown(top);
            if (__builtin_expect(shrink.due, 0)) shrink.raise_m(r, S);
            exponentiate(S);
            group_wait<0>();
            keep(r); ENDS(ADDING, used - 1);
            tiles.release(used - 1);
            if (__builtin_expect(shrink.due, 0)) shrink.apply_to(r);
            round_weights(S, P);
            take_corrections(S, X);
            if (j % (PROMOTION / BC) == 0) sums.take(r, j > PROMOTION / BC);
            ENDS(WEIGHING, used);
        }
        BEGINS(ADDING, used); keep(r);
        ask_values(r, P, tiles.at(used) + 2 * PIECE, ones);
        group_wait<0>();
        keep(r); ENDS(ADDING, used);
        tiles.release(used++);
        if (mine.keys > PROMOTION) sums.add_to(r);
    }
    __device__ __forceinline__ void store_part(unsigned n) {
        const TaskPart t = part_at(p, n);  // once more, as registers to keep it in are scarce
        const int row0 = t.row0 + warp_row();
        const long long row = partial_row(p, t, row0);
        float* to = p.splits > 1 ? p.partial_o + row * D : row_of(p.o, t.batch, row0);
        if (BALANCED && t.continued) add_part(r, p, row0, p.row_stats + row, to);
        store(r, p, t.batch, row0, to, p.row_stats + row, false, p.splits == 1 && (!BALANCED || t.last_key == p.Nk));
    }
    __device__ __forceinline__ void attend_all() {
        if (turn == GROUPS) give_turn(1);
        if (EARLY) begin_part(0, part_at(p, 0), false), await_first();
#pragma unroll 1
        for (unsigned n = 0;; n++) {
            const TaskPart t = EARLY ? part_at(p, n) : queries.wait_for_part(p, n);
            if (!t.any) return;
            const Mask mine = mask_of(t);
            if (CAUSAL && mine.is_empty()) return leave_empty(p, t);
            if (!EARLY) begin_part(n, t, Q_AHEAD && n > 0), await_first();
            attend_part(n, mine);
            if (EARLY) begin_part(n + 1, queries.wait_for_part(p, n + 1), true);
            store_part(n);
            if (EARLY) await_first();
            if (MOST_BLOCKS == 0 && !INT8) return;  // so the compiler knows that j is the same in all lanes; INT8 would spill
        }
    }
};

// A block: it takes task after task; some convert K and V of later batches before.
__device__ __forceinline__ void attend(const Params& p) {
    const Tiles tiles{shared_start(shared)};
    const Queries queries{tiles.base + Q_AT, tiles.base + Q_BARRIERS_AT};
    const int group = group_number();
    allow_next_launch();
    if (BALANCED) await_launch();  // before numbers are taken
    if (threadIdx.x == 0) tiles.prepare(), queries.prepare(), take_number(p);
    if (Q_AHEAD && threadIdx.x < 32) {
        __syncwarp();
        if (const TaskPart t = find_part(p, 0); threadIdx.x == 0) keep_part(0, t);
    }
#if CONVERTING
    __syncthreads();
    if (block_number() < kept(CONVERTERS)) {
        convert_share(p, kept(FIRST), Arriving<Q_AT + Q_BYTES - RING_AT>(tiles.base + RING_AT, tiles.base + ARRIVING_AT));
        __syncthreads();
    }
#endif
    make_ones(tiles.base + ONES_AT);
    show_shared();
    if (group == GROUPS) {
        fewer_registers<COPY_REGISTERS>();
        if (threadIdx.x == WORKERS) await_launch(), fetch_tiles(p, tiles, queries);
#if Q_AHEAD
        if (threadIdx.x >= WORKERS + 32) queries.bring_all(p);
#endif
        return;
    }
    more_registers<REGISTERS>();
    Group{p, tiles, queries, 1 + group}.attend_all();
}
#endif  // GROUPS
