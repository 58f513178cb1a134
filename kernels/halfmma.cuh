#pragma once
// 16-bit products by mma.sync: tiles of rows on their way to shared memory, and a warp's products of MI x 16 rows and N keys.
//
// A row lies in ROW bytes, swizzled by 16-byte chunks so that ldmatrix meets no bank twice.

#include "halfrows.cuh"
#include "mma.cuh"

constexpr int STEPS = ceil_div(D, 16);                    // k16 steps of QK; n16 blocks of O that hold numbers
constexpr int WIDTH = D <= 32 ? 32 : D <= 64 ? 64 : D <= 128 ? 128 : 256;  // columns of a row in shared memory
constexpr int SLOTS = WIDTH / 8;                          // chunks of a row there
constexpr int N8 = SUB / 8;                               // n8 blocks of keys whose exponentials are taken together
constexpr unsigned ROW = 2 * WIDTH;

static_assert(SUB % 16 == 0, "P V takes 16 keys a step");

typedef float Scores[MI][N8][4];

// The offset of a 16-byte chunk: chunk c + 2k lies at the offset of chunk c, exclusive-or 32 k.
__device__ __forceinline__ unsigned swizzle(unsigned row, unsigned chunk) {
    return row * ROW + (WIDTH == 32 ? chunk ^ (row >> 1 & 3) : chunk ^ (row & 7)) * 16;
}
template <bool LAST = false> __device__ __forceinline__ void copy16(unsigned to, const unsigned short* from, bool inside) {
#if ARCH >= 800
    if (LAST) copy16_once(to, (const float*)from, inside);
    else copy16_async(to, (const float*)from, inside);
#else
    store_shared(to, inside ? *(const uint4*)from : uint4{0, 0, 0, 0});
#endif
}
// The copies since the last call are a group; waits until at most LATER groups of this thread are in flight. Without cp.async there
// is nothing to wait for.
__device__ __forceinline__ void copies_commit() {
#if ARCH >= 800
    cp_async_commit();
#endif
}
template <int LATER> __device__ __forceinline__ void copies_wait() {
#if ARCH >= 800
    if (LATER) cp_async_wait<LATER>();
    else cp_async_wait_all();
#endif
}

// Rows of a matrix on their way to shared memory, zeros past the end and right of D; a block (LANES: THREADS) or a warp copies.
// LAST: no block reads them again, so that they leave the L2 cache first.
template <int LANES, bool LAST = false> struct Rows {
    static constexpr int PASS = LANES / SLOTS;  // rows that all of them copy at once
    const unsigned short* from;                 // this thread's chunk of its first row
    __device__ __forceinline__ static int lane() { return LANES == THREADS ? threadIdx.x : threadIdx.x % LANES; }
    __device__ __forceinline__ Rows(const Matrix<const unsigned short>& m, int batch, int head, int first) {
        from = m.data + batch * m.batch + head * m.head + (first + lane() / SLOTS) * m.row + lane() % SLOTS * 8;
    }
    template <int COUNT> __device__ __forceinline__ void copy(unsigned to, long long step, int left) const {
        static_assert(COUNT % PASS == 0, "a pass covers whole rows of a tile");
        const int row = lane() / SLOTS, chunk = lane() % SLOTS;
        if (chunk >= 2 * STEPS) return;
        UNROLL for (int n = 0; n < COUNT; n += PASS) {
            const unsigned at = PASS % 8 == 0 ? swizzle(row, chunk) + n * ROW : swizzle(row + n, chunk);
            copy16<LAST>(to + at, from + n * step, row + n < left && chunk * 8 < D);
        }
    }
};

// A warp's products. q_at, k_lane, v_lane: this lane's row of Q, and those that it loads of a tile of K and V.
struct Products {
    unsigned q_at, k_lane, v_lane;
    unsigned Q[Q_REGISTERS ? MI : 1][Q_REGISTERS ? STEPS : 1][4];
    __device__ __forceinline__ Products(unsigned q_rows) {
        const int lane = threadIdx.x % 32;
        q_at = q_rows + swizzle(lane & 15, lane >> 4);
        k_lane = swizzle((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1), v_lane = swizzle(lane & 15, lane >> 4);
    }
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
            const unsigned ones[2] = {pack(1, 1), pack(1, 1)};
            if (ONES && c == 0) UNROLL for (int i = 0; i < MI; i++) mma(r[i].l, P[i][j], ones);
        }
    }
};

// SUB keys: their scores, masked by hide(S), the softmax, and O += P V.
template <class Hide>
__device__ __forceinline__ void attend(const Products& b, RowState (&r)[MI], const HalfWork& p, unsigned k_at, unsigned v_at,
                                       bool first, Hide hide) {
    Scores S;
    unsigned P[MI][N8 / 2][4];
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int n = 0; n < N8; n++) UNROLL for (int e = 0; e < 4; e++) S[i][n][e] = 0;
    UNROLL for (int n = 0; n < STEPS; n++) b.add_scores(S, n, k_at);
    hide(S);
    bool grown = false;
    if (first) UNROLL for (int i = 0; i < MI; i++) begin_maximum(S[i], r[i], p.scale);
    else UNROLL for (int i = 0; i < MI; i++) grown |= outgrown(S[i], r[i], p);
    if (__builtin_expect(ANY(grown), 0))
        UNROLL for (int i = 0; i < MI; i++) raise_maximum(S[i], r[i], p.scale), r[i].grown = true, rescale(r[i]);
    UNROLL for (int i = 0; i < MI; i++) exponentiate(S[i], r[i], p.scale), round_weights(S[i], P[i]);
    UNROLL for (int c = 0; c < STEPS; c++) b.add_values(r, P, c, v_at);
}
