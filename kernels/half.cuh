#pragma once
// What half computes for a tile of rows: which tile is next, the online softmax in the registers of a warpgroup, and O.
//
// The macros come from hw4cli/arrays/half.py: GROUPS of four warps share a tile of BR = 64 GROUPS rows; K and V pass in tiles of
// BC keys through STAGES buffers each; COLUMNS of O are computed, D rounded up; ONES: the tensor cores sum P.

#include "hopper.cuh"
#include "schedule.cuh"

// The bytes that hw4cli/arrays/half.py lays out.
struct HalfParams {
    TensorMap q, k, v;           // of 16-bit numbers: d, rows, heads, batches
    Matrix<unsigned short> o;
    float* lse;                  // (batches, heads, Nq), natural; null where nobody asks for it
    int heads, group;            // heads of Q and O; how many of them share a head of K and V
    int batch_heads, Nq, Nk;
    int causal_offset;           // causal: row i sees the keys 0 to i + causal_offset
    int row_tiles, tiles;        // of a head; of all heads
    float scale;                 // of the scores, times log2(e); more than 0
    float room;                  // by how much a score may pass its row's m: RESCALE_THRESHOLD / scale
};

constexpr int SUBTILES = ceil_div(D, 64), STEPS = ceil_div(D, 16);  // of 64 columns, 128 bytes a row; k16 steps of Q K
constexpr unsigned Q_BYTES = SUBTILES * BR * 128, TILE_BYTES = SUBTILES * BC * 128;
constexpr unsigned K_AT = Q_BYTES, V_AT = K_AT + STAGES * TILE_BYTES, ONES_AT = V_AT + STAGES * TILE_BYTES;
constexpr unsigned BARRIERS_AT = ONES_AT + (ONES ? 2048 : 0);
constexpr float BIAS = BFLOAT16 ? 0 : 7;  // P is held as 2^(s - m + BIAS): fp16 then holds small weights, too

static_assert(BR == 64 * GROUPS && THREADS == 128 * (GROUPS + 1), "a group of four warps for each 64 rows, and one that copies");
static_assert(!ONES || COLUMNS == 64, "the column of ones lies behind 64 columns of V");
static_assert(BC % 16 == 0 && COLUMNS >= D && COLUMNS <= SUBTILES * 64, "tiles as wgmma takes them");

// The matrix that begins at an address, of rows of 128 bytes, swizzled, in groups of eight. What lies `beyond` bytes after it are
// further columns. (PTX ISA, "Matrix-Descriptor Format".) The upper half is a constant, the lower one a sum with constants.
__device__ __forceinline__ unsigned matrix_at(unsigned address, unsigned beyond) { return address >> 4 | beyond >> 4 << 16; }
__device__ __forceinline__ unsigned long long descriptor(unsigned low) { return 0x40000040ull << 32 | low; }

// ---- Which rows

struct RowTile {
    int row0, head, batch;
    int key_tiles;  // that some row sees; at least one, so that every tile is alike
};

// How many keys a row sees: always the first ones. Not more than 0 where it sees none.
__device__ __forceinline__ int keys_of(const HalfParams& p, int row) {
    return CAUSAL ? min(p.Nk, row + p.causal_offset + 1) : p.Nk;
}
__device__ __forceinline__ int key_tiles_of(const HalfParams& p, int last_row) {
    return max(1, ceil_div(keys_of(p, last_row), BC));
}

// Causal: the longest tiles first, of SECTION heads at a time, whose K and V then stay in the L2 cache.
__device__ __forceinline__ RowTile row_tile(const HalfParams& p, int n) {
    int tile, head;
    if (CAUSAL) {
        const int section = n / (SECTION * p.row_tiles), first = section * SECTION;
        const int heads = min(SECTION, p.batch_heads - first), rest = n - first * p.row_tiles;
        tile = p.row_tiles - 1 - rest / heads, head = first + rest % heads;
    } else {
        head = n / p.row_tiles, tile = n - head * p.row_tiles;
    }
    const int batch = head / p.heads;
    return {tile * BR, head - batch * p.heads, batch, key_tiles_of(p, tile * BR + BR - 1)};
}
// Calls work(tile) for this block's tiles. Causal: every second round goes backwards, so that no block gets all the long ones.
template <class Work> __device__ __forceinline__ void each_row_tile(const HalfParams& p, Work work) {
    const int blocks = gridDim.x;
    for (int round = 0; round * blocks < p.tiles; round++) {
        const int n = round * blocks + (CAUSAL && round % 2 ? blocks - 1 - blockIdx.x : blockIdx.x);
        if (n < p.tiles) work(row_tile(p, n));
    }
}

// ---- The softmax

typedef float Scores[BC / 8][4];        // of a thread: rows l/4 and l/4 + 8 of its warp, columns 2(l%4) and +1 of eight
typedef unsigned Weights[BC / 16][4];   // P in 16 bits, as the products take it from registers

struct RowState {
    float O[COLUMNS / 8][4];
    float l[4];         // of a thread's columns; of all, where ONES
    float m[2], shift[2], shrink[2];  // P = 2^(scale s - shift); what O is due to be multiplied by
    bool grown;
};

__device__ __forceinline__ void keep4(float (&x)[4]) { keep(*(float (*)[1][4])&x); }
__device__ __forceinline__ void keep(RowState& r) {
    keep(r.O);
    if (ONES) keep4(r.l);
}

__device__ __forceinline__ void row_tops(const Scores& S, float (&top)[2]) {
    UNROLL for (int h = 0; h < 2; h++) {
        float a = S[0][2 * h], b = S[0][2 * h + 1];
        UNROLL for (int n = 1; n < BC / 8; n++) a = fmaxf(a, S[n][2 * h]), b = fmaxf(b, S[n][2 * h + 1]);
        top[h] = lanes_max<4>(fmaxf(a, b));
    }
}
__device__ __forceinline__ void weigh(Scores& S, RowState& r, float scale) {
    UNROLL for (int n = 0; n < BC / 8; n++) UNROLL for (int e = 0; e < 4; e++) {
        S[n][e] = exp2_fast(fmaf(S[n][e], scale, -r.shift[e / 2]));
        if (!ONES) r.l[e] += S[n][e];
    }
}
__device__ __forceinline__ void begin_softmax(Scores& S, RowState& r, const HalfParams& p) {
    row_tops(S, r.m);
    UNROLL for (int h = 0; h < 2; h++) {
        if (r.m[h] == MINUS_INFINITY) r.m[h] = 0;  // a row without keys
        r.shift[h] = fmaf(r.m[h], p.scale, -BIAS);
    }
    UNROLL for (int e = 0; e < 4; e++) r.l[e] = 0;
    weigh(S, r, p.scale);
}
// Lazy: m stays until a score has passed it by `room`. Scores are compared as integers, which is right from 0 on; a row whose m
// lies below that looks at its scores each time.
__device__ __forceinline__ void go_on_softmax(Scores& S, RowState& r, const HalfParams& p) {
    int top[2] = {0, 0};
    UNROLL for (int n = 0; n < BC / 8; n++) UNROLL for (int h = 0; h < 2; h++) raise_bits(top[h], S[n][2 * h], S[n][2 * h + 1]);
    bool grown = false;
    UNROLL for (int h = 0; h < 2; h++) grown |= top[h] > max(-1, __float_as_int(r.m[h] + p.room));
    r.grown = ANY(grown);
    if (__builtin_expect(r.grown, 0)) {
        float tops[2];
        row_tops(S, tops);
        UNROLL for (int h = 0; h < 2; h++) {
            r.m[h] = fmaxf(r.m[h], tops[h]);
            const float shift = fmaf(r.m[h], p.scale, -BIAS);
            r.shrink[h] = exp2_fast(r.shift[h] - shift), r.shift[h] = shift;
        }
        if (!ONES) UNROLL for (int e = 0; e < 4; e++) r.l[e] *= r.shrink[e / 2];
    }
    weigh(S, r, p.scale);
}
__device__ __forceinline__ void rescale(RowState& r) {
    if (!r.grown) return;
    UNROLL for (int n = 0; n < COLUMNS / 8; n++) UNROLL for (int e = 0; e < 4; e++) r.O[n][e] *= r.shrink[e / 2];
    if (ONES) UNROLL for (int e = 0; e < 4; e++) r.l[e] *= r.shrink[e / 2];
}
__device__ __forceinline__ void round_weights(const Scores& S, Weights& P) {
    UNROLL for (int n = 0; n < BC / 8; n++) UNROLL for (int h = 0; h < 2; h++)
        P[n / 2][n % 2 * 2 + h] = pack(S[n][2 * h], S[n][2 * h + 1]);
}
// No weight for keys that a row does not see. `first` is the first key's number, `row` that of this thread's first row.
__device__ __forceinline__ void mask(Scores& S, const HalfParams& p, int row, int first) {
    const int column = threadIdx.x % 4 * 2;
    UNROLL for (int h = 0; h < 2; h++) {
        const int keys = keys_of(p, row + h * 8) - first - column;
        UNROLL for (int n = 0; n < BC / 8; n++) UNROLL for (int e = 0; e < 2; e++)
            if (n * 8 + e >= keys) S[n][2 * h + e] = MINUS_INFINITY;
    }
}

// ---- O

// Four lanes hold four pairs of columns each; they exchange them, so that each has 16 bytes that lie side by side.
__device__ __forceinline__ void exchange_pairs(unsigned (&x)[4]) {
    UNROLL for (int bit = 1; bit <= 2; bit *= 2) UNROLL for (int s = 0; s < 2; s++) {
        const int low = bit == 1 ? 2 * s : s, high = low + bit;
        const bool upper = threadIdx.x & bit;
        const unsigned got = SHFL_XOR(upper ? x[low] : x[high], bit);
        if (upper) x[low] = got;
        else x[high] = got;
    }
}
__device__ __forceinline__ void store(const RowState& r, const HalfParams& p, const RowTile& t, int row0) {
    const int lane = threadIdx.x % 4;
    UNROLL for (int h = 0; h < 2; h++) {
        const float l = ONES ? r.l[2 * h] : lanes_sum<4>(r.l[2 * h] + r.l[2 * h + 1]);
        const float over = l == 0 ? 0 : __frcp_rn(l);
        const int row = row0 + 8 * h;
        unsigned short* o = p.o.data + t.batch * p.o.batch + t.head * p.o.head + row * p.o.row;
        UNROLL for (int g = 0; g < COLUMNS / 32; g++) {
            unsigned x[4];
            UNROLL for (int n = 0; n < 4; n++)
                x[n] = pack(r.O[g * 4 + n][2 * h] * over, r.O[g * 4 + n][2 * h + 1] * over);
            exchange_pairs(x);
            const int column = g * 32 + lane * 8;
            if (row < p.Nq && column < D) *(uint4*)(o + column) = make_uint4(x[0], x[1], x[2], x[3]);
        }
        if (p.lse && lane == 0 && row < p.Nq)
            p.lse[(long long)(t.batch * p.heads + t.head) * p.Nq + row] =
                l == 0 ? MINUS_INFINITY : (r.shift[h] + log2f(l)) * LN2;
    }
}
