// half_short: 16-bit attention of short rows on Hopper: all keys of a tile of rows at once, several tiles side by side.
//
// Idea:     With so few keys there is no loop to overlap, and the copy of Q, K, V and O is what takes time. A producer warp issues copies of
//           whole tasks (a tile of rows, its keys and values) as fast as there is room; TEAMS of BR / 64 groups of four warps
//           compute them in turns, so that one team's exponentials overlap with another's products and stores. O leaves by the copy engine,
//           from where Q was, in whole lines.
// Geometry: As many blocks as there are multiprocessors; each takes every so many tile of BR rows.
// Shared:   STAGES of 128 (BR + 2 BC) bytes for each 64 columns; ones, barriers.
// Limits:   As half; Nk <= BC.
// Before:   half, whose groups wait for each other's phases where there is but one tile of keys.

#include "halfgroup.cuh"

struct HalfShortParams : HalfTensors {
    TensorMap o;  // boxes of 64 rows
    HalfWork work;
};

constexpr unsigned STAGE_BYTES = Q_BYTES + 2 * TILE_BYTES;
static_assert(!OWN_ONES, "one column of ones, behind 64 columns of V");
constexpr unsigned ONES_AT = STAGES * STAGE_BYTES, FULL = ONES_AT + (ONES ? 2048 : 0), EMPTY = FULL + 8 * STAGES;
static_assert(BR == 64 * GROUPS && THREADS == 128 * (TEAMS * GROUPS + 1), "a consumer for each 64 rows, and a producer");
static_assert(STAGES % TEAMS == 0, "a stage belongs to one team: its parity is known to those who waited for its last phase");

extern __shared__ __align__(1024) float4 shared[];

extern "C" __global__ void __launch_bounds__(THREADS, 1) half_short(const __grid_constant__ HalfShortParams p) {
    const HalfWork& w = p.work;
    const unsigned base = shared_start(shared);
    const int group = warpgroup_index();
    if (threadIdx.x == 0) {
        for (int n = 0; n < STAGES; n++)
            mbarrier_init<1>(base + FULL + 8 * n), mbarrier_init<GROUPS>(base + EMPTY + 8 * n);
    }
    begin_block(base + ONES_AT);

    if (group == 0) {
        dealloc_registers<COPY_REGISTERS>();
        if (threadIdx.x > 0) return;
        unsigned round = 0;
        for (int n = blockIdx.x; n < w.tiles; n += gridDim.x, round++) {
            const unsigned stage = round % STAGES, full = base + FULL + 8 * stage;
            const unsigned q_at = base + stage * STAGE_BYTES, k_at = q_at + Q_BYTES, v_at = k_at + TILE_BYTES;
            const RowTile t = row_tile(w, n);
            const int kv_head = t.head / w.group;
            mbarrier_wait(base + EMPTY + 8 * stage, round / STAGES % 2 ^ 1);
            mbarrier_expect<STAGE_BYTES>(full);
            UNROLL for (int c = 0; c < SUBTILES; c++) {
                copy_box(q_at + c * BR * 128, p.q, c * 64, t.row0, t.head, t.batch, full);
                copy_box(k_at + c * BC * 128, p.k, c * 64, 0, kv_head, t.batch, full);
                copy_box(v_at + c * BC * 128, p.v, c * 64, 0, kv_head, t.batch, full);
            }
        }
        return;
    }

    alloc_registers<REGISTERS>();
    const int mine = (group - 1) % GROUPS;
    for (unsigned round = (group - 1) / GROUPS;; round += TEAMS) {
        const int n = blockIdx.x + round * gridDim.x;
        if (n >= w.tiles) return;
        const unsigned stage = round % STAGES, at = base + stage * STAGE_BYTES, q_at = at + mine * 64 * 128;
        const unsigned k_at = at + Q_BYTES, v_at = k_at + TILE_BYTES, empty = base + EMPTY + 8 * stage;
        const RowTile t = row_tile(w, n);
        const int group_row = t.row0 + mine * 64, row0 = group_row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
        mbarrier_wait(base + FULL + 8 * stage, round / STAGES % 2);
        if (group_row < w.Nq) {
            Scores S;
            Weights P;
            RowState r;
            ScoreTiles<BC / 8> scored;
            scored.load(w, t, row0, 0);
            issue_scores(S, q_at, k_at);
            wgmma_wait<0>();
            fence_registers(S);
            change_scores(S, w, t, row0, 0, scored);
            if (needs_mask(w, group_row, 64, 0, BC)) mask(S, w, row0, 0);
            begin_softmax(S, r, w);
            round_weights(S, P);
            zero(r);
            fence_registers(r);
            issue_values(r, P, v_at, base + ONES_AT);
            wgmma_wait<0>();
            fence_registers(r);
            store_by_copy(r, w, p.o, t, group_row, q_at, group);
        }
        if (threadIdx.x % 128 == 0) bulk_wait_read(), mbarrier_arrive(empty);
    }
}
