// pitched: smallbr with rows of K and V so far apart as cudaMallocPitch has them.
//
// Idea:     CUDA's 2D alignment: every row begins at a multiple of 512 bytes. A launch copies K and V to such rows first; the
//           blocks of smallbr, which read them again and again, take them from there. PITCH, a knob, is the floats from row to
//           row: 128 (512 bytes, cudaMallocPitch on these GPUs); d, as they are in the file; d + 1, which aligns no row.
// Geometry: pitched_copy: ceil(B*N*d / THREADS) blocks, an element of K and of V a thread; pitched: as smallbr.
// Shared:   as smallbr.
// Limits:   scratch holds K and V: 8*B*N*PITCH bytes. There is nothing to gain: threads read a tile's rows side by side, so with
//           PITCH = d all tiles are one piece, which begins at a multiple of 128 bytes. Between other rows there are gaps.
// Source:   CUDA C++ programming guide, device memory, 2D arrays; cudaMallocPitch.
// Before:   smallbr. K and V come from rows that lie PITCH floats apart.

#include "block_softmax.cuh"
#include "rows.cuh"
#include "schedule.cuh"

static_assert(THREADS == BR * BC, "a block must hold one thread for each score of its tile");

static_assert(PITCH >= D, "a row must fit between two beginnings of rows");

// K and V, one behind the other, with every row PITCH floats behind the one before.
__device__ __forceinline__ float* beginning(const Params& p, bool of_v)
{
    return static_cast<float*>(p.scratch) + (of_v ? (long long)p.batches * p.Nk * PITCH : 0);
}

extern "C" __global__ void __launch_bounds__(THREADS)
pitched_copy(const Params p)
{
    const long long e = (long long)blockIdx.x * THREADS + threadIdx.x, row = e / D;
    if (row >= (long long)p.batches * p.Nk) return;
    const int batch = row / p.Nk, j = row % p.Nk, c = e % D;
    beginning(p, false)[row * PITCH + c] = row_of(p.k, batch, j)[c];
    beginning(p, true)[row * PITCH + c] = row_of(p.v, batch, j)[c];
}

// Brings BC rows that lie PITCH floats apart to shared memory, STRIDE floats apart; rows past the end become zeros.
template <int STRIDE> __device__ inline void load_pitched(float* tile, const float* rows, int rows_left)
{
    for (int e = threadIdx.x; e < BC * D; e += THREADS)
        tile[e / D * STRIDE + e % D] = e / D < rows_left ? rows[e / D * PITCH + e % D] : 0.0f;
}

extern "C" __global__ void LAUNCH_BOUNDS
pitched(const Params p)
{
    extern __shared__ float4 shared[];
    float* Q = reinterpret_cast<float*>(shared);
    float* K = Q + BR * D;
    float* V = K + BC * (D + 1);
    float* S = V + BC * D;  // turns into P in place
    float* alpha = S + BR * (BC + 1);

    const Task t = task_of(blockIdx.x, p);
    const long long first = (long long)t.batch * p.Nk * PITCH;
    const float *q = row_of(p.q, t.batch, t.row0), *k = beginning(p, false) + first, *v = beginning(p, true) + first;
    float* o = row_of(p.o, t.batch, t.row0);

    float m = BELOW_ALL_SCORES, l = 0.0f;  // of row threadIdx.x; only the first BR threads use them
    float O[OUTPUTS] = {};
    load_rows<BR, D>(Q, q, p.Nq - t.row0, p.scale * LOG2E);

    for (int key0 = 0; key0 < last_key(p, t); key0 += BC) {
        const Mask mask = mask_at(p, t.row0, key0, p.Nk - key0);
        __syncthreads();  // all threads have read the tile before
        load_pitched<D + 1>(K, k + (long long)key0 * PITCH, p.Nk - key0);
        load_pitched<D>(V, v + (long long)key0 * PITCH, p.Nk - key0);
        __syncthreads();

        const int i = threadIdx.x / BC, j = threadIdx.x % BC;
        float s = 0.0f;
        for (int c = 0; c < D; ++c) s += Q[i * D + c] * K[j * (D + 1) + c];
        S[i * (BC + 1) + j] = mask.allows(i, j) ? s : MINUS_INFINITY;
        __syncthreads();

        take_softmax(S, alpha, m, l);
        __syncthreads();

#pragma unroll
        for (int n = 0; n < OUTPUTS; ++n) {  // unrolled, or O would not be in registers
            const int e = min(int(threadIdx.x) + n * THREADS, BR * D - 1), i = e / D, c = e % D;
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < BC; ++j) sum += S[i * (BC + 1) + j] * V[j * D + c];
            O[n] = alpha[i] * O[n] + sum;
        }
    }

    write_rows(o, O, alpha, l, t.row0, p.Nq);
}
