// half_mma: attention of fp16 or bf16 numbers on any tensor cores: each warp issues its own products (mma.sync).
//
// Idea:     FlashAttention-2. Each warp owns MI x 16 rows; Q (Q_REGISTERS) and O stay in its registers, P goes from accumulator
//           to operand without leaving them. The exponentials of SUB keys are taken together; while one warp takes them, the tensor cores multiply for
//           another one, so that no warp needs to compute ahead (which was tried, and cost more than it won).
// Geometry: batches * heads * ceil(Nq/BR) blocks, BR = 16 MI rows a warp; K and V pass in tiles of BC keys. Causal: keys behind a
//           tile's diagonal, and before its window, are not touched, the longest tiles come first, and only keys at the diagonal pay for a mask.
// Shared:   w (BR + 4 BC) bytes, w = 2 d rounded up to 64, 128, 256 or 512: Q, two tiles of K, two of V. The next tile is on its way
//           while this one is used; a block waits once a tile.
// Limits:   Compute capability 8.0, for fp16 also 7.5 (no copies beside the work there). d a multiple of 8 up to 256; rows of
//           16-byte chunks.
// Source:   Dao, FlashAttention-2 (2023), algorithm 1; lazy rescaling: FlashAttention-4.
// Before:   half, whose wgmma and tensor maps are Hopper's alone; and split, for three products where here is one.

#include "halfmma.cuh"

struct HalfMmaParams : HalfMatrices, HalfWork {};

constexpr int SUBS = BC / SUB;
constexpr unsigned TILE = BC * ROW;

static_assert(BR == THREADS / 32 * 16 * MI && BC % SUB == 0, "warps of whole fragments, tiles of whole subs");

extern __shared__ __align__(1024) float4 shared[];

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) half_mma(const HalfMmaParams p) {
    const RowTile t = row_tile(p, blockIdx.x);
    const HalfWork& work = work_of(p, t);
    int warp_row = t.row0 + threadIdx.x / 32 * 16 * MI;
    const unsigned base = shared_address(shared);
    Rows<THREADS> K(p.k, t.batch, t.head / p.group, t.first_key()), V(p.v, t.batch, t.head / p.group, t.first_key());
    auto fetch = [&](int tile) {
        const unsigned to = base + BR * ROW + tile % 2 * TILE;
        K.copy<BC>(to, p.k.row, work.Nk - tile * BC), V.copy<BC>(to + 2 * TILE, p.v.row, work.Nk - tile * BC);
        K.from += BC * p.k.row, V.from += BC * p.v.row;
    };
    Rows<THREADS>(p.q, t.batch, t.head, t.first_row() + t.row0).copy<BR>(base, p.q.row, work.Nq - t.row0);
    fetch(0);

    Products b(base + threadIdx.x / 32 * 16 * MI * ROW);
    RowState r[MI];
    UNROLL for (int i = 0; i < MI; i++) zero(r[i]);
    // What follows from these is computed again in each iteration: kept, it would cost registers.
    auto forget = [&] { asm volatile("" : "+r"(warp_row), "+r"(b.q_at), "+r"(b.k_lane), "+r"(b.v_lane)); };
    copies_wait<0>();
    __syncthreads();
    b.load_q();
#pragma unroll 1
    for (int j = 0; j < t.key_tiles; j++) {
        if (j + 1 < t.key_tiles) fetch(j + 1);
        UNROLL for (int u = 0; u < SUBS; u++) {
            const int first = j * BC + u * SUB;
            // None of the warp's rows sees a key.
            if (first > 0 && first >= keys_of(work, warp_row + 16 * MI - 1)) continue;
            if (WINDOW && first > 0 && first + SUB <= first_key_of(work, warp_row)) continue;
            forget();
            const unsigned at = base + BR * ROW + j % 2 * TILE + u * SUB * ROW;
            attend(b, r, work, at, at + 2 * TILE, first == 0, [&](Scores& S) {
                UNROLL for (int i = 0; i < MI; i++) {
                    ScoreTiles<N8> scored;
                    scored.load(p, t, warp_row + 16 * i + threadIdx.x % 32 / 4, first);
                    change_scores(S[i], p, t, warp_row + 16 * i + threadIdx.x % 32 / 4, first, scored);
                }
                if (!needs_mask(work, warp_row, 16 * MI, first, SUB)) return;
                UNROLL for (int i = 0; i < MI; i++) mask(S[i], work, warp_row + 16 * i + threadIdx.x % 32 / 4, first);
            });
        }
        copies_wait<0>();
        __syncthreads();
    }
    // Which rows these are is found again: kept, it would cost registers.
    unsigned block, thread;
    read_again(block, thread);
    const RowTile done = row_tile(p, block);
    const HalfWork& own = work_of(p, done);
    UNROLL for (int i = 0; i < MI; i++) store(r[i], own, done, done.row0 + (thread / 32 * MI + i) * 16 + thread % 32 / 4);
}
