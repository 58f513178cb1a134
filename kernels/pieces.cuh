#pragma once
// What tensor cores take for gradients: float32 as sums of two fp16 numbers, scaled by powers of two; 16-bit elements as they
// are.
//
// An element x becomes hi + lo = factor x to 22 bits, hi and lo in fp16. A tile of TILE rows of a head has a factor of its own,
// which brings its largest element to 2^14 to 2^15; of dO, the largest sum of |elements| of a row. So |dP| < 2^30, whatever the
// data, |delta| is not more than that sum times O's largest element, and from both follows the factor of dS, |dS| <= 2^15. What
// is 2^40 times smaller than the largest of its tile counts as 0.

#include "gradients.cuh"
#include "mma.cuh"
#include "platform.cuh"

constexpr int PIECES = ELEMENT_BITS == 32 ? 2 : 1;
constexpr bool SCALED = !BFLOAT16;           // bf16 has the range of float32
constexpr float BIAS = SCALED ? 14 : 0;      // P is held as 2^BIAS P
constexpr int COLUMNS = ceil_div(D, 8) * 8;  // of a row of a piece
constexpr int TILE = 32, WARPS_OF_ROWS = THREADS / 32, EACH = TILE / WARPS_OF_ROWS;  // rows of a tile; of them, a warp's
#define INFINITE __int_as_float(0x7f800000)
#define LARGEST __int_as_float(0x7f7fffff)

static_assert(EACH * WARPS_OF_ROWS == TILE, "a warp has whole rows");

// The powers of two of a tile, and their inverses.
struct QueryScale { float over_q, over_dO, o, over_o; };
struct KeyScale { float over_k, over_v, v, unused; };

struct PiecesParams : BackwardParams {
    Matrix<const unsigned short> q_pieces, k_pieces, v_pieces, dO_pieces;  // rows of PIECES * COLUMNS, or the arrays themselves
    QueryScale* query_scales;  // of each tile of each head
    KeyScale* key_scales;
    float2* rows;              // for each row of Q, up to whole tiles: BIAS - LSE log2(e), -delta times the factor of dO's pieces
    int query_tiles, key_tiles;
    int whole;                 // whether LSE and O are of these keys, and no others: a row's weights then add up to 1
};

__device__ __forceinline__ float finite_abs(float x) { return fabsf(x) < INFINITE ? fabsf(x) : 0; }
__device__ __forceinline__ float largest(float4 x) {
    return fmaxf(fmaxf(finite_abs(x.x), finite_abs(x.y)), fmaxf(finite_abs(x.z), finite_abs(x.w)));
}
__device__ __forceinline__ float size(float4 x) { return finite_abs(x.x) + finite_abs(x.y) + finite_abs(x.z) + finite_abs(x.w); }

// The power of two that brings a number to 2^14 to 2^15, and its inverse; both are normal numbers.
__device__ __forceinline__ unsigned exponent_for(float top) { return min(253, 268 - int(__float_as_uint(top) >> 23)); }
__device__ __forceinline__ float factor_for(float top) { return __uint_as_float(exponent_for(top) << 23); }
__device__ __forceinline__ float inverse(float power_of_two) {
    return __uint_as_float(0x7f000000 - __float_as_uint(power_of_two));
}
__device__ __forceinline__ float over_factor_for(float top) { return inverse(factor_for(top)); }

// The largest of a block's numbers.
__device__ __forceinline__ float block_max(float x, float* found) {
    x = lanes_max<32>(x);
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = x;
    __syncthreads();
    UNROLL for (int n = 0; n < WARPS_OF_ROWS; n++) x = fmaxf(x, found[n]);
    return x;
}

struct Pieces { unsigned piece[PIECES]; };
__device__ __forceinline__ Pieces pieces_of(float x, float y) {
    Pieces r;
    r.piece[0] = pack(x, y);
    if (PIECES == 2) {
        const float2 rounded = unpack(r.piece[0]);
        r.piece[PIECES - 1] = pack(x - rounded.x, y - rounded.y);
    }
    return r;
}

// This thread's four columns of a warp's rows of a tile.
struct Columns {
    float4 x[EACH];
    __device__ __forceinline__ Columns(const Matrix<const Element>& m, int batch, int head, int row0, int rows) {
        UNROLL for (int n = 0; n < EACH; n++) {
            const int row = row0 + threadIdx.x / 32 * EACH + n, column = threadIdx.x % 32 * 4;
            x[n] = row < rows && column < D ? load_four(rows_of(m, batch, head, row) + column) : float4{0, 0, 0, 0};
        }
    }
    __device__ __forceinline__ float top() const {
        float r = 0;
        UNROLL for (int n = 0; n < EACH; n++) r = fmaxf(r, largest(x[n]));
        return r;
    }
    __device__ __forceinline__ void store(const Matrix<const unsigned short>& m, int batch, int head, int row0, int rows,
                                          float factor) const {
        UNROLL for (int n = 0; n < EACH; n++) {
            const int row = row0 + threadIdx.x / 32 * EACH + n, column = threadIdx.x % 32 * 4;
            if (PIECES != 2 || row >= rows || column >= COLUMNS) continue;
            const Pieces a = pieces_of(x[n].x * factor, x[n].y * factor), b = pieces_of(x[n].z * factor, x[n].w * factor);
            unsigned short* to = const_cast<unsigned short*>(rows_of(m, batch, head, row)) + column;
            UNROLL for (int i = 0; i < PIECES; i++) *(uint2*)(to + i * COLUMNS) = uint2{a.piece[i], b.piece[i]};
        }
    }
};

// A block for each tile of Q, O and dO, then one for each of K and V: their scales and pieces; and for each row, LSE and delta.
extern "C" __global__ void __launch_bounds__(THREADS, 1) backward_pieces(const PiecesParams p) {
    __shared__ float found[3][WARPS_OF_ROWS];
    const int of_queries = p.batches * p.heads * p.query_tiles, lane = threadIdx.x % 32;
    if (int(blockIdx.x) < of_queries) {
        const int head = blockIdx.x / p.query_tiles, row0 = blockIdx.x % p.query_tiles * TILE, batch = head / p.heads;
        const int in_batch = head % p.heads;
        const Columns o(p.o, batch, in_batch, row0, p.Nq), d(p.dO, batch, in_batch, row0, p.Nq);
        float factor = 1;
        if (SCALED) {
            float sum = 0;
            UNROLL for (int n = 0; n < EACH; n++) sum = fmaxf(sum, lanes_sum<32>(size(d.x[n])));
            const float top_d = block_max(sum, found[0]), top_o = block_max(o.top(), found[1]);
            QueryScale scale{1, over_factor_for(top_d), factor_for(top_o), over_factor_for(top_o)};
            if (PIECES == 2) {
                factor = factor_for(top_d);
                const Columns q(p.q, batch, in_batch, row0, p.Nq);
                const float top_q = block_max(q.top(), found[2]);
                q.store(p.q_pieces, batch, in_batch, row0, p.Nq, factor_for(top_q));
                d.store(p.dO_pieces, batch, in_batch, row0, p.Nq, factor);
                scale.over_q = over_factor_for(top_q);
            }
            if (threadIdx.x == 0) p.query_scales[blockIdx.x] = scale;
        }
        UNROLL for (int n = 0; n < EACH; n++) {
            const float4 a = d.x[n], b = o.x[n];
            const float delta = lanes_sum<32>(a.x * factor * b.x + a.y * factor * b.y + a.z * factor * b.z + a.w * factor * b.w);
            const int row = threadIdx.x / 32 * EACH + n;
            const float lse = row0 + row < p.Nq ? p.lse[(long long)head * p.Nq + row0 + row] : -INFINITE;
            const float shift = lse == -INFINITE ? lse : BIAS - lse * LOG2E;  // no keys, or past the end: no weights
            if (lane == 0) p.rows[(long long)blockIdx.x * TILE + row] = float2{shift, -delta};
        }
    } else if (SCALED) {
        const int tile = blockIdx.x - of_queries, head = tile / p.key_tiles, row0 = tile % p.key_tiles * TILE;
        const int batch = head / p.kv_heads, in_batch = head % p.kv_heads;
        const Columns v(p.v, batch, in_batch, row0, p.Nk);
        const float top_v = block_max(v.top(), found[0]);
        KeyScale scale{1, over_factor_for(top_v), factor_for(top_v), 0};
        if (PIECES == 2) {
            const Columns k(p.k, batch, in_batch, row0, p.Nk);
            const float top_k = block_max(k.top(), found[1]);
            k.store(p.k_pieces, batch, in_batch, row0, p.Nk, factor_for(top_k));
            v.store(p.v_pieces, batch, in_batch, row0, p.Nk, factor_for(top_v));
            scale.over_k = over_factor_for(top_k);
        }
        if (threadIdx.x == 0) p.key_scales[tile] = scale;
    }
}

// In terms of pieces, P = exp2(to_log2 S + row.x) and dS = P (dP ds + row.y delta); and what makes their sums the gradients.
struct Factors {
    float to_log2, ds, delta, dv, dq, dk;
    // One piece: the same ones for all heads that share a head of K, so that tensor cores can add up all tiles.
    __device__ __forceinline__ Factors(const PiecesParams& p, int kv)
        : to_log2(p.scale * LOG2E), ds(1), delta(1), dv(1), dq(p.scale), dk(p.scale) {
        if (PIECES == 2 || !SCALED) return;
        const int lane = threadIdx.x % 32, group = p.heads / p.kv_heads;
        float over_dO = 0, over_both = 0;
        for (int n = lane; n < group * p.query_tiles; n += 32) {
            const Four x = *(const Four*)(p.query_scales + (long long)kv * group * p.query_tiles + n);
            over_dO = fmaxf(over_dO, x.v[1]), over_both = fmaxf(over_both, x.v[3]);
        }
        for (int n = lane; n < p.key_tiles; n += 32)
            over_both = fmaxf(over_both, p.key_scales[(long long)kv * p.key_tiles + n].over_v);
        over_dO = lanes_max<32>(over_dO), over_both = lanes_max<32>(over_both);
        ds = delta = fminf(inverse(over_dO) * 0x1p-30f * inverse(over_both), LARGEST);
        dv = 0x1p-14f, dq = dk = p.scale * 0x1p16f * over_both * over_dO;
    }
    // Two pieces: of a tile of queries and one of keys.
    __device__ __forceinline__ void set(const PiecesParams& p, const Four& query, const Four& key) {
        const float over_k = key.v[0], over_v = key.v[1], over_q = query.v[0], over_dO = query.v[1];
        const float over_both = fmaxf(over_v, query.v[3]);  // of V and O, whichever is larger
        to_log2 = p.scale * LOG2E * over_q * over_k;
        delta = fminf(key.v[2], query.v[2]) * 0x1p-30f, ds = over_v * delta, dv = 0x1p-14f * over_dO;
        const float over = fminf(p.scale * 0x1p16f * over_both * over_dO, LARGEST);
        dq = over * over_k, dk = over * over_q;
    }
};
