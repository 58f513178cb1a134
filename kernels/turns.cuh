#pragma once
// Attention by warpgroups that take turns (compute capability 9.0): GROUPS groups of four warps have 64 rows each, and one warp
// more asks for tiles of K and V.
//
// A group asks for its next scores and for P V of the last ones, passes on the turn, and takes exponentials of the scores that
// have come: meanwhile the tensor cores compute for another group.

#include "converters.cuh"
#include "hopper.cuh"
#include "parts.cuh"
#include "scores.cuh"
#include "sums.cuh"

#if GROUPS
// Shared memory: STAGES tiles of K and V, a ring; two barriers for each; the block's number; ones for the 16 keys of a
// product; O, l and BIAS - m of the keys before; INT8: Q in integers.
constexpr unsigned BARRIERS_AT = STAGES * STAGE;
constexpr unsigned ONES_AT = ceil_div(NUMBER_AT + KEPT_BYTES, 1024) * 1024;
constexpr unsigned SUMS_AT = ONES_AT + ONES_BYTES, Q_AT = SUMS_AT + SUMS_BYTES;

static_assert(MI == 1 && WORKERS == 128 * GROUPS && BR == 64 * GROUPS, "a group of four warps for each 64 rows, one that copies");
static_assert(Q_AT % 1024 == 0, "tiles begin at multiples of 1024");
static_assert(SUB == BC, "a tile's scores are in registers at once");

// Tile n lies in buffer n % STAGES.
struct Tiles {
    unsigned base;
    __device__ __forceinline__ unsigned at(unsigned n) const { return base + n % STAGES * STAGE; }
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

// What the copying warp does: it asks for the tiles of each task, as soon as their buffers are empty.
__device__ __forceinline__ void fetch_tiles(const Params& p, const Tiles& tiles) {
    unsigned asked = 0;
    each_part(p, [&](unsigned, const Part& part) {
        const Task t = task_of_part(p, part);
        const char* first = p.tiles + (long long)(t.batch * ceil_div(p.Nk, BC) + t.first_key / BC) * STAGE;
        const int count = ceil_div(t.last_key - t.first_key, BC);
#if CONVERTING
        if (t.batch >= kept(FIRST)) wait_for_count(flag_of(p, t.batch), 1);
#endif
#pragma unroll 1  // its registers are few
        for (int j = 0; j < count; j++, asked++) {
            BEGINS(COPYING, asked);
            tiles.fetch(first + j * (long long)STAGE, asked);
            ENDS(COPYING, asked);
        }
    });
}

// A group's 64 rows of part n. `used` tiles passed before.
__device__ __forceinline__ void attend_part(const Params& p, const Tiles& tiles, unsigned n, Part part, int turn,
                                            int next_turn, unsigned& used) {
    const unsigned ones = tiles.base + ONES_AT, q_at = tiles.base + Q_AT + (turn - 1) * 64 * ROW;
    const Sums sums{tiles.base + SUMS_AT};
    RowState r;
    Scores S;
    Corrections X;
    Probabilities P;
    Mask mine;
    {
        const Task t = task_of_part(p, part);
        const int row0 = t.row0 + warp_row();
        mine = mask_at(p, row0, t.first_key, t.last_key - t.first_key);
        if (CAUSAL && mine.is_empty()) return leave_empty(p, t);
        const unsigned before = WarpAbsmax::before(p.absmax);
        WarpAbsmax found;
        found.add(Q_TOP, bring_queries(r, p, row_of(p.q, t.batch, row0), p.Nq - row0, q_at, GROUPS + turn));
        found.note(p.absmax, before);  // at once: no register is left to keep it in
    }
    auto mask_tail = [&](int j) {
        if (const Mask mask = mine.after(j * BC); !mask.is_full(BC)) apply(mask, (Scores*)&S);
    };
    // The tile whose corrections are computed meanwhile: the next one; behind the last tile its own again, unused.
    unsigned corrected = used + (INT8 && mine.keys > BC);
    zero(r);
    tiles.wait(used); BEGINS(SCORING, used);
    ask_corrections(X, tiles.at(used), q_at);
    group_wait<0>();
    take_corrections(S, X);
    ask_scores(r, S, tiles.at(used));
    tiles.wait(corrected);
    ask_corrections(X, tiles.at(corrected), q_at);
    group_wait<INT8>();
    keep(S[0]); ENDS(SCORING, used);
    if (INT8) multiply(S, unit_of(p));
    mask_tail(0); BEGINS(WEIGHING, used);
    begin_m(r, S);
    add_base(r, S);
    exponentiate(S);
    round_weights(S, P); ENDS(WEIGHING, used);
    group_wait<0>();
    take_corrections(S, X);
#pragma unroll 1
    for (int j = 1; j * BC < mine.keys; j++) {
        const unsigned last = tiles.at(used++);
        corrected = used + (INT8 && (j + 1) * BC < mine.keys);
        tiles.wait(corrected);
        wait_for_turn(turn); BEGINS(SCORING, used); BEGINS(ADDING, used - 1);
        keep(r);
        ask_scores(r, S, tiles.at(used));
        ask_values(r, P, last + 2 * PIECE, ones);
        ask_corrections(X, tiles.at(corrected), q_at);
        give_turn(next_turn);
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
    part_of(p, n, part);  // computed again, as registers to keep it in are scarce
    const Task t = task_of_part(p, part);
    const int row0 = t.row0 + warp_row();
    const long long row = partial_row(p, t, row0);
    float* to = p.splits > 1 ? p.partial_o + row * D : row_of(p.o, t.batch, row0);
    if (BALANCED && part.first > 0) add_part(r, p, row0, p.row_stats + row, to);
    store(r, p, t.batch, row0, to, p.row_stats + row, false, p.splits == 1 && (!BALANCED || t.last_key == p.Nk));
}

// A block: it takes task after task; some convert K and V of later batches before.
__device__ __forceinline__ void attend(const Params& p) {
    const Tiles tiles{shared_start(shared)};
    const int group = group_number();
    allow_next_launch();
    if (BALANCED) await_launch();  // before numbers are taken
    if (threadIdx.x == 0) tiles.prepare(), take_number(p);
    make_ones(tiles.base + ONES_AT);
    show_shared();
#if CONVERTING
    if (block_number() < kept(CONVERTERS)) convert_share(p, kept(FIRST), place_of(CLAIMED));
#endif
    if (group == GROUPS) {
        fewer_registers<COPY_REGISTERS>();
        if (threadIdx.x == WORKERS) await_launch(), fetch_tiles(p, tiles);
        return;
    }
    more_registers<REGISTERS>();
    unsigned used = 0;
    if (group == GROUPS - 1) give_turn(1);
    each_part(p, [&](unsigned n, const Part& part) {
        attend_part(p, tiles, n, part, 1 + group, 1 + (group + 1) % GROUPS, used);
    });
}
#endif  // GROUPS
