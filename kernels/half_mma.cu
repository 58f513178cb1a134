// half_mma: attention of fp16 or bf16 numbers on any tensor cores: each warp multiplies for itself (mma.sync).
//
// Idea:     FlashAttention-2. Each warp owns MI x 16 rows; Q (Q_REGISTERS) and O stay in its registers, P goes from accumulator
//           to operand without leaving them. While the tensor cores compute the scores of the next SUB keys (AHEAD), the warp
//           weighs these: products, exponentials and roundings of one warp are independent and run at the same time.
// Geometry: batches * heads * ceil(Nq/BR) blocks, BR = 16 MI rows a warp; K and V pass in tiles of BC keys. Causal: keys behind a
//           tile's diagonal are not touched, the longest tiles come first, and only keys at the diagonal pay for a mask.
// Shared:   w (BR + BC (4 + AHEAD)) bytes, w = 2 d rounded up to 64, 128 or 256: Q, two tiles of K, two or three of V. A copy is
//           on its way for a whole tile before it is waited for, once a tile.
// Limits:   Compute capability 8.0, for fp16 also 7.5 (no copies beside the work there). d a multiple of 8 up to 128; rows of
//           16-byte chunks.
// Source:   Dao, FlashAttention-2 (2023), algorithm 1; lazy rescaling: FlashAttention-4.
// Before:   half, whose wgmma and tensor maps are Hopper's alone; and split, for three products where here is one.

#include "halfrows.cuh"
#include "mma.cuh"

struct HalfMatrices { Matrix<const unsigned short> q, k, v; };
struct HalfMmaParams : HalfMatrices, HalfWork {};

constexpr int STEPS = ceil_div(D, 16);                         // k16 steps of QK; n16 blocks of O that hold numbers
constexpr int WIDTH = D <= 32 ? 32 : D <= 64 ? 64 : 128;       // columns of a row in shared memory
constexpr int SUBS = BC / SUB, N8 = SUB / 8;
constexpr unsigned ROW = 2 * WIDTH, TILE = BC * ROW;
constexpr unsigned K_AT = BR * ROW, V_AT = K_AT + 2 * TILE;
constexpr int V_TILES = 2 + AHEAD;
constexpr int SLOTS = WIDTH / 8, PASS = THREADS / SLOTS;       // a pass of all threads copies so many rows

static_assert(BR == THREADS / 32 * 16 * MI && BC % SUB == 0 && SUB % 16 == 0, "warps of whole fragments, tiles of whole subs");
static_assert(PASS % 8 == 0 && BR % PASS == 0 && BC % PASS == 0, "a pass covers whole rows of a tile, and keeps their swizzle");

extern __shared__ __align__(1024) float4 shared[];

typedef float Scores[MI][N8][4];

// The offset of a 16-byte chunk: chunk c + 2k lies at the offset of chunk c, exclusive-or 32 k.
__device__ __forceinline__ unsigned swizzle(unsigned row, unsigned chunk) {
    return row * ROW + (WIDTH == 32 ? chunk ^ (row >> 1 & 3) : chunk ^ (row & 7)) * 16;
}
__device__ __forceinline__ void copy16(unsigned to, const unsigned short* from, bool inside) {
#if ARCH >= 800
    copy16_async(to, (const float*)from, inside);
#else
    store_shared(to, inside ? *(const uint4*)from : uint4{0, 0, 0, 0});
#endif
}
__device__ __forceinline__ void group() {
#if ARCH >= 800
    group_copies();
#endif
}
template <int LATER> __device__ __forceinline__ void arrived() {
#if ARCH >= 800
    copies_arrived_but<LATER>();
#endif
    __syncthreads();
}

// Rows of a matrix on their way to shared memory, zeros past the end and right of D.
struct Rows {
    const unsigned short* from;  // this thread's chunk of its first row
    long long step;              // to the next row
    __device__ __forceinline__ Rows(const Matrix<const unsigned short>& m, int batch, int head, int row) {
        step = m.row;
        from = m.data + batch * m.batch + head * m.head + (row + threadIdx.x / SLOTS) * step + threadIdx.x % SLOTS * 8;
    }
    template <int COUNT> __device__ __forceinline__ void copy(unsigned to, int left) const {
        const int row = threadIdx.x / SLOTS, chunk = threadIdx.x % SLOTS;
        if (chunk >= 2 * STEPS) return;
        UNROLL for (int n = 0; n < COUNT; n += PASS)
            copy16(to + swizzle(row, chunk) + n * ROW, from + n * step, row + n < left && chunk * 8 < D);
    }
};

struct Block {
    unsigned q_at, k_lane, v_lane;
    unsigned Q[Q_REGISTERS ? MI : 1][Q_REGISTERS ? STEPS : 1][4];
    __device__ __forceinline__ void load_q() {
        if (Q_REGISTERS) UNROLL for (int i = 0; i < MI; i++) UNROLL for (int n = 0; n < STEPS; n++)
            load_matrices(Q[Q_REGISTERS ? i : 0][Q_REGISTERS ? n : 0], (q_at ^ n * 32) + i * 16 * ROW);
    }
    // One k16 step of the scores of SUB keys.
    __device__ __forceinline__ void add_scores(Scores& S, int step, unsigned k_at) const {
        unsigned q[MI][4];
        UNROLL for (int i = 0; i < MI; i++) {
            if (!Q_REGISTERS) load_matrices(q[i], (q_at ^ step * 32) + i * 16 * ROW);
            else UNROLL for (int e = 0; e < 4; e++) q[i][e] = Q[Q_REGISTERS ? i : 0][Q_REGISTERS ? step : 0][e];
        }
        UNROLL for (int n = 0; n < N8; n += 2) {
            unsigned K[4];
            load_matrices(K, (k_at + k_lane ^ step * 32) + n * 8 * ROW);
            UNROLL for (int i = 0; i < MI; i++) mma(S[i][n], q[i], K), mma(S[i][n + 1], q[i], K + 2);
        }
    }
    // O += P V for 16 columns.
    __device__ __forceinline__ void add_values(RowState* r, const unsigned (*P)[N8 / 2][4], int c, unsigned v_at) const {
        UNROLL for (int j = 0; j < N8 / 2; j++) {
            unsigned V[4];
            load_transposed(V, (v_at + v_lane ^ c * 32) + j * 16 * ROW);
            UNROLL for (int i = 0; i < MI; i++) mma(r[i].O[2 * c], P[i][j], V), mma(r[i].O[2 * c + 1], P[i][j], V + 2);
        }
    }
};

__device__ __forceinline__ void zero(Scores& S) {
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int n = 0; n < N8; n++) UNROLL for (int e = 0; e < 4; e++) S[i][n][e] = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) half_mma(const HalfMmaParams p) {
    const RowTile t = row_tile(p, blockIdx.x);
    const int lane = threadIdx.x % 32, warp_row = t.row0 + threadIdx.x / 32 * 16 * MI, row0 = warp_row + lane / 4;
    const unsigned base = shared_address(shared);
    Rows K(p.k, t.batch, t.head / p.group, 0), V(p.v, t.batch, t.head / p.group, 0);
    auto fetch = [&](int tile, bool with) {  // the copies of a tile are a group, which may be empty
        if (with) {
            K.copy<BC>(base + K_AT + tile % 2 * TILE, p.Nk - tile * BC);
            V.copy<BC>(base + V_AT + tile % V_TILES * TILE, p.Nk - tile * BC);
            K.from += BC * K.step, V.from += BC * V.step;
        }
        group();
    };
    Rows(p.q, t.batch, t.head, t.row0).copy<BR>(base, p.Nq - t.row0);
    fetch(0, true);
    if (AHEAD) fetch(1, t.key_tiles > 1);

    Block b;
    b.q_at = base + swizzle(threadIdx.x / 32 * 16 * MI + (lane & 15), lane >> 4);
    b.k_lane = swizzle((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1), b.v_lane = swizzle(lane & 15, lane >> 4);
    const int full_keys = keys_of(p, warp_row), warp_keys = keys_of(p, warp_row + 16 * MI - 1);  // that all, and that any rows see
    RowState r[MI];
    UNROLL for (int i = 0; i < MI; i++) zero(r[i]);
    auto hide = [&](Scores& S, int first) {
        if (first + SUB > full_keys) UNROLL for (int i = 0; i < MI; i++) mask(S[i], p, row0 + 16 * i, first);
    };
    auto begin = [&](const Scores& S) { UNROLL for (int i = 0; i < MI; i++) begin_maximum(S[i], r[i], p.scale); };
    auto follow = [&](const Scores& S) {
        bool grown = false;
        UNROLL for (int i = 0; i < MI; i++) grown |= outgrown(S[i], r[i], p.room);
        if (__builtin_expect(ANY(grown), 0))
            UNROLL for (int i = 0; i < MI; i++) raise_maximum(S[i], r[i], p.scale), r[i].grown = true, rescale(r[i]);
    };
    auto multiply_values = [&](const Scores& S, unsigned v_at) {
        unsigned P[MI][N8 / 2][4];
        UNROLL for (int i = 0; i < MI; i++) round_weights(S[i], P[i]);
        UNROLL for (int c = 0; c < STEPS; c++) b.add_values(r, P, c, v_at);
    };

    arrived<AHEAD>();
    b.load_q();
    Scores S;
    if (AHEAD) {
        zero(S);
        UNROLL for (int n = 0; n < STEPS; n++) b.add_scores(S, n, base + K_AT);
        hide(S, 0), begin(S);
#pragma unroll 1
        for (int j = 0; j < t.key_tiles; j++) {
            const unsigned v_at = base + V_AT + j % V_TILES * TILE;
            UNROLL for (int u = 0; u < SUBS; u++) {
                const bool last = u + 1 == SUBS;
                if (last) {
                    arrived<0>();
                    fetch(j + 2, j + 2 < t.key_tiles);
                }
                if (j * BC + u * SUB >= warp_keys) continue;
                // Behind the last tile: whatever lies there (the first again, if it is the only one) is not used.
                const unsigned k_at = base + K_AT + (last && j + 1 < t.key_tiles ? (j + 1) % 2 : j % 2) * TILE
                                      + (last ? 0 : (u + 1) * SUB * ROW);
                Scores next;
                zero(next);
                UNROLL for (int n = 0; n < STEPS; n++) {
                    b.add_scores(next, n, k_at);
                    UNROLL for (int x = n * MI * N8 / STEPS; x < (n + 1) * MI * N8 / STEPS; x++)
                        weigh(S[x / N8][x % N8], r[x / N8], p.scale);
                }
                multiply_values(S, v_at + u * SUB * ROW);
                UNROLL for (int i = 0; i < MI; i++) UNROLL for (int n = 0; n < N8; n++) UNROLL for (int e = 0; e < 4; e++)
                    S[i][n][e] = next[i][n][e];
                hide(S, j * BC + (u + 1) * SUB), follow(S);
            }
        }
    } else {
#pragma unroll 1
        for (int j = 0; j < t.key_tiles; j++) {
            if (j > 0) arrived<0>();
            fetch(j + 1, j + 1 < t.key_tiles);
            UNROLL for (int u = 0; u < SUBS; u++) {
                const unsigned at = j % 2 * TILE + u * SUB * ROW;
                if (j * BC + u * SUB >= max(1, warp_keys)) continue;
                zero(S);
                UNROLL for (int n = 0; n < STEPS; n++) b.add_scores(S, n, base + K_AT + at);
                hide(S, j * BC + u * SUB);
                if (j == 0 && u == 0) begin(S);
                else follow(S);
                UNROLL for (int i = 0; i < MI; i++) weigh(S[i], r[i], p.scale);
                multiply_values(S, base + V_AT + at);
            }
        }
    }
    // Which rows these are is found again: kept, it would cost registers.
    unsigned block, thread;
    read_again(block, thread);
    const RowTile done = row_tile(p, block);
    UNROLL for (int i = 0; i < MI; i++) store(r[i], p, done, done.row0 + (thread / 32 * MI + i) * 16 + thread % 32 / 4);
}
