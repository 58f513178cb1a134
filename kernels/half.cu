// half: attention of fp16 or bf16 numbers on Hopper: every unit of the multiprocessor at work at once.
//
// Idea:     One warp asks for tiles of K and V; three or four groups of four warps multiply (wgmma) 64 rows each. A group asks
//           for its next scores and for P V of the last ones, and takes exponentials of neither: while the tensor cores compute
//           for it, it weighs the scores that have come. Groups take turns in asking, so that one's exponentials meet
//           another's products. P never leaves the registers; m moves only when a score has grown by 2^8. To compare: AHEAD
//           0 waits for each product; TURNS 0 lets groups ask as they come.
// Geometry: As many blocks as there are multiprocessors; each takes tile after tile of BR = 64 GROUPS rows. Causal: keys behind
//           a tile's diagonal are not touched, the longest tiles come first, each for the block that is free (half_start begins
//           to count them), and only tiles at the diagonal pay for a mask.
// Shared:   Q_BUFFERS of Q, 128 BR bytes for each 64 columns; STAGES tiles of K and of V, 128 BC bytes for each 64 columns;
//           ones, barriers.
// Limits:   Compute capability 9.0 and no other. d a multiple of 8 up to 128; rows of 16-byte chunks.
// Source:   Shah et al., FlashAttention-3 (2024): roles, turns, and scores one tile ahead; FlashAttention-4's lazy rescaling.
// Before:   split, whose three fp16 products for a score become one: here the numbers are 16-bit to begin with.

#include "half.cuh"

extern __shared__ __align__(1024) float4 shared[];

// A ring of STAGES buffers: tile n lies in buffer n % STAGES.
struct Tiles {
    unsigned data, full, empty;
    __device__ __forceinline__ unsigned at(unsigned n) const { return data + n % STAGES * TILE_BYTES; }
    __device__ __forceinline__ void fetch(const TensorMap& map, unsigned n, int row, int head, int batch) const {
        const unsigned barrier = full + n % STAGES * 8;
        barrier_wait(empty + n % STAGES * 8, n / STAGES % 2 ^ 1);
        barrier_expect<TILE_BYTES>(barrier);
        UNROLL for (int c = 0; c < SUBTILES; c++) copy_box(at(n) + c * BC * 128, map, c * 64, row, head, batch, barrier);
    }
    __device__ __forceinline__ unsigned wait(unsigned n) const {
        barrier_wait(full + n % STAGES * 8, n / STAGES % 2);
        return at(n);
    }
    __device__ __forceinline__ void release(unsigned n) const {
        if (threadIdx.x % 32 == 0) barrier_arrive(empty + n % STAGES * 8);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) half(const __grid_constant__ HalfParams p) {
    const unsigned base = shared_start(shared), full_q = base + FULL_Q, empty_q = base + EMPTY_Q;
    const Tiles K{base + K_AT, base + K_RING, base + K_RING + 8 * STAGES};
    const Tiles V{base + V_AT, base + V_RING, base + V_RING + 8 * STAGES};
    int* taken = (int*)((char*)shared + TAKEN_AT);
    const int group = group_number();
    if (threadIdx.x == 0) {
        for (int n = 0; n < Q_BUFFERS; n++) barrier_init<1>(full_q + 8 * n), barrier_init<4 * GROUPS>(empty_q + 8 * n);
        for (int n = 0; n < STAGES; n++) {
            barrier_init<1>(K.full + 8 * n), barrier_init<4 * GROUPS>(K.empty + 8 * n);
            barrier_init<1>(V.full + 8 * n), barrier_init<4 * GROUPS>(V.empty + 8 * n);
        }
    }
    begin_block(base + ONES_AT);

    if (group == 0) {
        fewer_registers<COPY_REGISTERS>();
        if (threadIdx.x > 0) return;
        unsigned asked = 0;
        for (unsigned round = 0;; round++) {
            const unsigned buffer = round % Q_BUFFERS, full = full_q + 8 * buffer, to = base + buffer * Q_BYTES;
            const int n = next_tile(p, round);
            barrier_wait(empty_q + 8 * buffer, round / Q_BUFFERS % 2 ^ 1);
            taken[buffer] = n;
            if (n >= p.tiles) return barrier_arrive(full);
            barrier_expect<Q_BYTES>(full);
            const RowTile t = row_tile(p, n);
            const int kv_head = t.head / p.group;
            UNROLL for (int c = 0; c < SUBTILES; c++) copy_box(to + c * BR * 128, p.q, c * 64, t.row0, t.head, t.batch, full);
#pragma unroll 1
            for (int j = 0; j <= t.key_tiles; j++) {
                if (j < t.key_tiles) K.fetch(p.k, asked + j, j * BC, kv_head, t.batch);
                if (j > 0) V.fetch(p.v, asked + j - 1, (j - 1) * BC, kv_head, t.batch);
            }
            asked += t.key_tiles;
        }
    }

    more_registers<REGISTERS>();
    const int mine = group - 1, turn = 1 + mine, next_turn = 1 + (mine + 1) % GROUPS;
    unsigned used = 0;
    auto take_turn = [&] { if (TURNS) wait_for_turn(turn); };
    auto end_turn = [&] { if (TURNS) give_turn(next_turn); };
    if (TURNS && mine == GROUPS - 1) give_turn(1);
    auto pass = [&](int j, int end) {  // tiles that only other groups see: pass on the turn
#pragma unroll 1
        for (; j < end; j++) {
            if (j > 0) take_turn(), end_turn();
            K.wait(used + j), K.release(used + j);
            V.wait(used + j), V.release(used + j);
        }
        used += end;
    };
    for (unsigned round = 0;; round++) {
        const unsigned buffer = round % Q_BUFFERS, q_at = base + buffer * Q_BYTES + mine * 64 * 128;
        barrier_wait(full_q + 8 * buffer, round / Q_BUFFERS % 2);
        const int n = SHFL(threadIdx.x % 32 == 0 ? taken[buffer] : 0, 0);  // read by the lane that will say so
        if (n >= p.tiles) return;
        const RowTile t = row_tile(p, n);
        const int group_row = t.row0 + mine * 64, row0 = group_row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
        const int key_tiles = CAUSAL ? min(t.key_tiles, key_tiles_of(p, group_row + 63)) : t.key_tiles;
        const int full_keys = keys_of(p, group_row);  // that all rows of the group see
        if (group_row >= p.Nq) {
            if (threadIdx.x % 32 == 0) barrier_arrive(empty_q + 8 * buffer);
            pass(0, t.key_tiles);
            continue;
        }
        Scores S;
        Weights P;
        RowState r;
        r.grown = false;
        zero(r);
        ask_scores(S, q_at, K.wait(used));
        group_wait<0>();
        keep(S);
        K.release(used);
        if (BC > full_keys) mask(S, p, row0, 0);
        begin_softmax(S, r, p);
        round_weights(S, P);
#pragma unroll 1
        for (int j = 1; j < key_tiles; j++) {
            if (!AHEAD) {
                keep(r);
                ask_values(r, P, V.wait(used + j - 1), base + ONES_AT);
                group_wait<0>();
            }
            const unsigned k_at = K.wait(used + j);
            take_turn();
            keep(r);
            ask_scores(S, q_at, k_at);
            if (AHEAD) ask_values(r, P, V.wait(used + j - 1), base + ONES_AT);
            end_turn();
            group_wait<AHEAD>();
            keep(S);
            K.release(used + j);
            if ((j + 1) * BC > full_keys) mask(S, p, row0, j * BC);
            go_on_softmax(S, r, p);
            group_wait<0>();
            keep(r);
            V.release(used + j - 1);
            rescale(r);
            round_weights(S, P);
        }
        if (threadIdx.x % 32 == 0) barrier_arrive(empty_q + 8 * buffer);
        keep(r);
        ask_values(r, P, V.wait(used + key_tiles - 1), base + ONES_AT);
        group_wait<0>();
        keep(r);
        V.release(used + key_tiles - 1);
        pass(key_tiles, t.key_tiles);
        store(r, p, t, row0);
    }
}
#if DYNAMIC

extern "C" __global__ void half_start(const __grid_constant__ HalfParams p) { *p.taken = 0; }
#endif
