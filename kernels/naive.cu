// naive: attention as it is written down, in three launches.
//
// Idea:     One thread computes one score, one warp normalises one row, one thread computes one output.
// Geometry: naive_scores: B * ceil(N/BR) * ceil(N/BC) blocks of BR*BC threads, 16 rows x 16 keys;
//           naive_softmax: ceil(B*N / (THREADS/32)) blocks of 256 threads, a warp per row; naive_values:
//           ceil(B*N*d / THREADS) blocks of 256 threads.
// Shared:   none.
// Limits:   scratch holds S, then P: 4*B*N*N bytes, which cross device memory six times. Neighbouring lanes
//           read neighbouring rows of K, 4*d bytes apart: a load is 16 transactions, not one.
// Source:   Vaswani et al. 2017, Attention Is All You Need, eq. 1; Dao et al. 2022, FlashAttention,
//           algorithm 0.
// Before:   nothing; this is the ground that the ladder stands on.

#include "common.cuh"

static_assert(BR * BC == THREADS, "a block must hold one thread for each score of its tile");
static_assert(!CAUSAL, "this rung has no causal mask");

extern "C" __global__ void __launch_bounds__(THREADS)
naive_scores(const float* q, const float* k, const float* v, float* o, void* scratch,
             long long in_stride, long long out_stride, int B, int N, int splits, float scale)
{
    const int row_tiles = ceil_div(N, BR), key_tiles = ceil_div(N, BC);
    const int key_tile = blockIdx.x % key_tiles, row_tile = blockIdx.x / key_tiles % row_tiles;
    const long long batch = blockIdx.x / key_tiles / row_tiles;
    const int i = row_tile * BR + threadIdx.x / BC, j = key_tile * BC + threadIdx.x % BC;
    if (i >= N || j >= N) return;

    const float* q_row = q + batch * in_stride + (long long)i * D;
    const float* k_row = k + batch * in_stride + (long long)j * D;
    float s = 0.0f;
    for (int c = 0; c < D; ++c) s += q_row[c] * k_row[c];

    float* S = static_cast<float*>(scratch);
    S[(batch * N + i) * N + j] = scale * s;
}

extern "C" __global__ void __launch_bounds__(THREADS)
naive_softmax(const float* q, const float* k, const float* v, float* o, void* scratch,
              long long in_stride, long long out_stride, int B, int N, int splits, float scale)
{
    const int lane = threadIdx.x % 32;
    const long long row = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= (long long)B * N) return;

    float* S = static_cast<float*>(scratch) + row * N;
    float m = MINUS_INFINITY, l = 0.0f;
    for (int j = lane; j < N; j += 32) m = fmaxf(m, S[j]);
    m = lanes_max<32>(m);
    for (int j = lane; j < N; j += 32) l += expf(S[j] - m);
    l = lanes_sum<32>(l);
    for (int j = lane; j < N; j += 32) S[j] = expf(S[j] - m) / l;
}

extern "C" __global__ void __launch_bounds__(THREADS)
naive_values(const float* q, const float* k, const float* v, float* o, void* scratch,
             long long in_stride, long long out_stride, int B, int N, int splits, float scale)
{
    const long long e = (long long)blockIdx.x * THREADS + threadIdx.x;
    const long long row = e / D, batch = row / N;
    const int c = e % D;
    if (batch >= B) return;

    const float* P = static_cast<const float*>(scratch) + row * N;
    const float* v_column = v + batch * in_stride + c;
    float sum = 0.0f;
    for (int j = 0; j < N; ++j) sum += P[j] * v_column[(long long)j * D];
    o[batch * out_stride + row % N * D + c] = sum;
}
