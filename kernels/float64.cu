// float64: what the others are measured against, and the way out for scores that float32 cannot hold.
//
// Idea:     The textbook softmax in double: pass 1 finds each row's maximum, pass 2 sums exp(s - m) and P V.
// Geometry: B * ceil(N/BR) blocks of 4*BR threads; BR = 32, BC = 16. Four lanes share a row: lane t of them
//           holds elements t, t+4, t+8, ... of Q and O, and computes every fourth exponential. Of d above 128 eight
//           lanes share a row, so that registers hold it, and BR = 16, BC = 8.
// Shared:   K and V as doubles: 16*BC*d bytes, 32 KB at d = 128 and 256.
// Limits:   Any d on any device, any finite input: |s| stays under 2e78. Q K^T is computed twice. scale is
//           not used: 1/sqrt(d) rounded to a float would be the largest error here. d is SCALED, where rows have zero
//           columns behind those of Q.
// Source:   the definition, O = softmax(Q K^T / sqrt(d)) V.
// Before:   none. It stands beside the ladder and shares no line with it, so that they share no mistake.

#include "params.cuh"

#ifdef __HIP__
#define SHFL(value, lane) __shfl(value, lane, LANES)
#define SHFL_XOR(value, bits) __shfl_xor(value, bits, LANES)
#else
#define SHFL(value, lane) __shfl_sync(0xffffffffu, value, lane, LANES)
#define SHFL_XOR(value, bits) __shfl_xor_sync(0xffffffffu, value, bits, LANES)
#endif

#ifndef SCALED
#define SCALED D
#endif

static_assert(D >= 4 && D <= 256 && D % 4 == 0, "the head size must be a multiple of 4 from 4 to 256");
constexpr int LANES = D <= 128 ? 4 : 8;  // that share a row
static_assert(THREADS == LANES * BR, "four or eight lanes must share a row");
static_assert(THREADS % 32 == 0, "a block must be whole warps");
static_assert(BC % 4 == 0, "each of the four lanes must take one exponential of four keys");

constexpr int PART = (D + LANES - 1) / LANES;  // elements of a row that one lane holds, zeros behind D among them
constexpr double NEVER = -1e300;  // the score of a key past the end: finite floats give no score below -2e78

__device__ inline double sum_of_lanes(double x)
{
    x += SHFL_XOR(x, 1);
    if (LANES == 8) x += SHFL_XOR(x, 4);
    return x + SHFL_XOR(x, 2);
}
// Whether a lane's element is one of the row.
__device__ inline bool is_inside(int part, int c) { return D % LANES == 0 || LANES * c + part < D; }

// The keys that a row sees, always the first ones; and the score of the others, whose weight must be 0 even where all are so.
__device__ inline int keys_of(const Params& p, int row)
{
    return CAUSAL ? max(0, min(p.Nk, row + p.causal_offset + 1)) : p.Nk;
}
// How many of these, the first ones, it does not see after all.
__device__ inline int hidden_of(const Params& p, int row) { return WINDOW ? max(0, row + p.causal_offset + 1 - p.window) : 0; }
// Causal: the blocks with the most keys come first.
__device__ inline unsigned in_order(unsigned block, int blocks) { return CAUSAL ? blocks - 1 - block : block; }
constexpr double UNSEEN = CAUSAL ? 1e5 * NEVER : NEVER;

// The scores of four keys, the same in all lanes of a row.
__device__ inline void four_scores(double (&s)[4], const double (&Q)[PART], const double* K, int part, int hidden, int keys_left)
{
    for (int u = 0; u < 4; ++u) {
        double dot = 0.0;
        for (int c = 0; c < PART; ++c) if (is_inside(part, c)) dot += Q[c] * K[u * D + LANES * c];
        if (CAUSAL) dot = sum_of_lanes(dot);  // by all rows of the warp: they see different keys
        s[u] = u >= keys_left || (WINDOW && u < hidden) ? UNSEEN : CAUSAL ? dot : sum_of_lanes(dot);
    }
}

__device__ inline void load_tile(double* tile, const float* rows, int rows_left)
{
    for (int e = threadIdx.x; e < BC * D; e += THREADS) tile[e] = e / D < rows_left ? (double)rows[e] : 0.0;
}

extern "C" __global__ void __launch_bounds__(THREADS)
float64(const Params p)
{
    ONLY_IF_CHOSEN(p);
    extern __shared__ float4 shared[];
    double* K = reinterpret_cast<double*>(shared);
    double* V = K + BC * D;

    const int blocks = (p.Nq + BR - 1) / BR;
    const long long batch = blockIdx.x / blocks;
    const int part = threadIdx.x % LANES, row = in_order(blockIdx.x % blocks, blocks) * BR + threadIdx.x / LANES;
    const int last_row = row / BR * BR + BR - 1, hidden = hidden_of(p, row), first = hidden_of(p, last_row - BR + 1) / BC * BC;
    const float* q = p.q.data + batch * p.q.batch + (long long)row * D + part;
    const float* k = p.k.data + batch * p.k.batch;
    const float* v = p.v.data + batch * p.v.batch;

    double Q[PART], O[PART] = {}, m = NEVER, l = 0.0, s[4];
    for (int c = 0; c < PART; ++c) Q[c] = row < p.Nq && is_inside(part, c) ? q[LANES * c] / sqrt((double)SCALED) : 0.0;

    for (int key0 = first; key0 < keys_of(p, last_row); key0 += BC) {
        __syncthreads();  // all threads have read the tile before
        load_tile(K, k + (long long)key0 * D, p.Nk - key0);
        __syncthreads();
#pragma unroll 1
        for (int j = 0; j < BC; j += 4) {
            four_scores(s, Q, K + j * D + part, part, hidden - key0 - j, keys_of(p, row) - key0 - j);
            m = fmax(m, fmax(fmax(s[0], s[1]), fmax(s[2], s[3])));
        }
    }

    for (int key0 = first; key0 < keys_of(p, last_row); key0 += BC) {
        __syncthreads();
        load_tile(K, k + (long long)key0 * D, p.Nk - key0);
        load_tile(V, v + (long long)key0 * D, p.Nk - key0);
        __syncthreads();
#pragma unroll 1
        for (int j = 0; j < BC; j += 4) {
            four_scores(s, Q, K + j * D + part, part, hidden - key0 - j, keys_of(p, row) - key0 - j);
            const int mine = part % 4;
            const double weight = exp((mine == 0 ? s[0] : mine == 1 ? s[1] : mine == 2 ? s[2] : s[3]) - m);
            if (part < 4) l += weight;
            for (int u = 0; u < 4; ++u) {
                const double w = SHFL(weight, u);
                for (int c = 0; c < PART; ++c) if (is_inside(part, c)) O[c] += w * V[(j + u) * D + LANES * c + part];
            }
        }
    }

    l = sum_of_lanes(l);
    if (row >= p.Nq) return;
    float* o = p.o.data + batch * p.o.batch + (long long)row * D + part;
    for (int c = 0; c < PART; ++c)
        if (is_inside(part, c)) o[LANES * c] = CAUSAL && keys_of(p, row) <= hidden ? 0.0f : (float)(O[c] / l);
    if (p.lse && part == 0) p.lse[batch * p.Nq + row] = (float)(m + log(l));  // of no keys, that of 0
}
