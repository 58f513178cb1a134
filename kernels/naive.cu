// naive: attention as it is written down, in three launches.
//
// Idea:     One thread computes one score, one warp normalises one row, one thread computes one output.
// Geometry: naive_scores: B * ceil(N/BR) * ceil(N/BC) blocks of BR*BC threads, 16 rows x 16 keys;
//           naive_softmax: ceil(B*N / (THREADS/32)) blocks of 256 threads, a warp per row; naive_values:
//           ceil(B*N*d / THREADS) blocks of 256 threads. SOFTMAX_LANES, a knob: 1 gives a row of the softmax to one thread.
// Shared:   none.
// Limits:   scratch holds S, then P: 4*B*N*N bytes, which cross device memory six times. Neighbouring lanes
//           read neighbouring rows of K, 4*d bytes apart: a load is 16 transactions, not one.
// Source:   Vaswani et al. 2017, Attention Is All You Need, eq. 1; Dao et al. 2022, FlashAttention,
//           algorithm 0.
// Before:   nothing; this is the ground that the ladder stands on.

#include "schedule.cuh"

static_assert(BR * BC == THREADS, "a block must hold one thread for each score of its tile");
static_assert(32 % SOFTMAX_LANES == 0, "the lanes that share a row must be of one warp");

extern "C" __global__ void __launch_bounds__(THREADS)
naive_scores(const Params p)
{
    const int key_tiles = ceil_div(p.Nk, BC), key_tile = blockIdx.x % key_tiles;
    const Task t = task_of(blockIdx.x / key_tiles, p);
    if (CAUSAL && key_tile * BC >= t.last_key) return;
    const int i = t.row0 + threadIdx.x / BC, j = key_tile * BC + threadIdx.x % BC;
    if (i >= p.Nq || j >= p.Nk) return;

    const float *q_row = row_of(p.q, t.batch, i), *k_row = row_of(p.k, t.batch, j);
    float s = 0.0f;
    for (int c = 0; c < D; ++c) s += q_row[c] * k_row[c];

    float* S = static_cast<float*>(p.scratch);
    S[((long long)t.batch * p.Nq + i) * p.Nk + j] =
        mask_at(p, i, 0, p.Nk).allows(0, j) ? p.scale * s : MINUS_INFINITY;
}

extern "C" __global__ void __launch_bounds__(THREADS)
naive_softmax(const Params p)
{
    const int lane = threadIdx.x % SOFTMAX_LANES;
    const long long row = (long long)blockIdx.x * (THREADS / SOFTMAX_LANES) + threadIdx.x / SOFTMAX_LANES;
    if (row >= (long long)p.batches * p.Nq) return;

    float* S = static_cast<float*>(p.scratch) + row * p.Nk;
    const int i = row % p.Nq;
    float m = MINUS_INFINITY, l = 0.0f;
    for (int j = lane; j < keys_of(p, i); j += SOFTMAX_LANES) m = fmaxf(m, S[j]);
    m = lanes_max<SOFTMAX_LANES>(m);
    for (int j = lane; j < keys_of(p, i); j += SOFTMAX_LANES) l += expf(S[j] - m);
    l = lanes_sum<SOFTMAX_LANES>(l);
    for (int j = lane; j < keys_of(p, i); j += SOFTMAX_LANES) S[j] = expf(S[j] - m) / l;
}

extern "C" __global__ void __launch_bounds__(THREADS)
naive_values(const Params p)
{
    const long long e = (long long)blockIdx.x * THREADS + threadIdx.x;
    const long long row = e / D;
    const int batch = row / p.Nq, c = e % D;
    if (batch >= p.batches) return;

    const float* P = static_cast<const float*>(p.scratch) + row * p.Nk;
    const float* v_column = row_of(p.v, batch, 0) + c;
    float sum = 0.0f;
    const int i = row % p.Nq;
    for (int j = 0; j < keys_of(p, i); ++j) sum += P[j] * v_column[(long long)j * D];
    row_of(p.o, batch, row % p.Nq)[c] = sum;
}
