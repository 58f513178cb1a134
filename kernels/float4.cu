// float4: after the course's best report.
//
// Idea:     Load four floats at a time. Half a warp owns two rows and each of its lanes 2 x BC/16 scores, so
//           a float4 of Q or K serves several of them; in P V a lane owns one float4 column of four rows.
// Geometry: B * ceil(N/BR) blocks of 8*BR threads; BC = 32, BR = the largest of 128, 64, 32 that fits into
//           the shared memory of a block. A warp owns 4 rows: its even lanes compute the scores of rows 0 and
//           1, its odd lanes those of 2 and 3, because a 16-byte load is cheaper when neighbours read the
//           same K.
// Shared:   Q, K, V without padding: 4*d*(BR + 2*BC) bytes; 128 x 32 at d = 64 is exactly 48 KB.
// Limits:   With 48 KB: BR = 128 to d = 64, 64 to d = 96, then 32. BC must be a multiple of 16. 1024 threads
//           leave 64 registers to each and one block to a multiprocessor, which idles at each barrier; none
//           is left to sum P V tile by tile, so N equal values lose digits (1e-3 at N = 32768).
// Source:   The course's rank-1 report (128 x 32 tiles, one warp = 4 rows, half-warp groups, float4 loads). Its own
//           kernel differs: 16 KB of shared memory, where Q takes 32 KB more here, and 54 registers; here a lane
//           owns keys, and the softmax is done once a tile.
// Before:   warp. 16-byte loads; a half-warp, not a warp, shares a row; a swizzle replaces the padding.

#include "schedule.cuh"

static_assert(BC % 16 == 0, "the 16 lanes of a half-warp must divide the keys of a tile evenly");
static_assert(THREADS == 8 * BR, "a warp must own four rows");

constexpr int CHUNKS = D / 4;    // float4s of a row
constexpr int KEYS = BC / 16;    // keys of a tile for which one lane computes scores
constexpr int LANES = CHUNKS > 16 ? 32 : CHUNKS > 8 ? 16 : CHUNKS > 4 ? 8 : CHUNKS > 2 ? 4 : 2;
constexpr int GROUPS = 32 / LANES;  // LANES lanes own a row of O; each group takes every GROUPS-th key

// Where chunk c of row j of K is stored. Lanes that read one chunk of eight neighbouring rows must find it in
// eight different groups of four banks: they do if CHUNKS is odd, else j is mixed into the low bits of c.
constexpr int TWOS = CHUNKS % 8 == 0 ? 3 : CHUNKS % 4 == 0 ? 2 : CHUNKS % 2 == 0 ? 1 : 0;
__device__ inline int swizzle(int j, int c)
{
    return j * CHUNKS + (c ^ (j >> (3 - TWOS) & ((1 << TWOS) - 1)));
}

__device__ inline float4 load(const float* rows, int chunk, int rows_left)
{
    return chunk < rows_left * CHUNKS ? reinterpret_cast<const float4*>(rows)[chunk] : float4{0, 0, 0, 0};
}

extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS)  // 64 registers at any BR
float4_kernel(const Params p)
{
    extern __shared__ float4 shared[];
    float4* Q = shared;
    float4* K = Q + BR * CHUNKS;
    float4* V = K + BC * CHUNKS;

    const Task t = task_of(blockIdx.x, p);
    const float *q = row_of(p.q, t.batch, t.row0), *k = row_of(p.k, t.batch, 0), *v = row_of(p.v, t.batch, 0);
    float* o = row_of(p.o, t.batch, t.row0);

    const int lane = threadIdx.x % 32, half = lane % 2, key = lane / 2, warp_row = threadIdx.x / 32 * 4;
    const int group = lane / LANES, column = min(lane % LANES, CHUNKS - 1);
    float m[2] = {BELOW_ALL_SCORES, BELOW_ALL_SCORES}, l[2] = {};  // l is the sum over this lane's keys
    float4 O[4] = {};                                          // of this group's keys

    for (int e = threadIdx.x; e < BR * CHUNKS; e += THREADS) {
        const float4 x = load(q, e, p.Nq - t.row0);
        const float f = p.scale * LOG2E;
        Q[e] = float4{f * x.x, f * x.y, f * x.z, f * x.w};
    }

    for (int key0 = 0; key0 < last_key(p, t); key0 += BC) {
        const Mask mask = mask_at(p, t.row0, key0, p.Nk - key0);
        __syncthreads();  // all threads have read the tile before
        for (int e = threadIdx.x; e < 2 * BC * CHUNKS; e += THREADS) {
            const int chunk = e % (BC * CHUNKS);
            const bool of_k = e < BC * CHUNKS;
            const float4 x = load((of_k ? k : v) + (long long)key0 * D, chunk, p.Nk - key0);
            if (of_k) K[swizzle(chunk / CHUNKS, chunk % CHUNKS)] = x;
            else V[chunk] = x;
        }
        __syncthreads();

        float S[2][KEYS] = {}, alpha[2];
#pragma unroll 1  // two at a time would spill
        for (int c = 0; c < CHUNKS; ++c)
            for (int x = 0; x < KEYS; ++x) {
                const float4 b = K[swizzle(key + 16 * x, c)];
                for (int r = 0; r < 2; ++r) {
                    const float4 a = Q[(warp_row + 2 * half + r) * CHUNKS + c];
                    S[r][x] += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
                }
            }

        for (int r = 0; r < 2; ++r) {
            float m_new = m[r];
            for (int x = 0; x < KEYS; ++x) {
                if (!mask.allows(warp_row + 2 * half + r, key + 16 * x)) S[r][x] = MINUS_INFINITY;
                m_new = fmaxf(m_new, S[r][x]);
            }
            m_new = lanes_max<16, 2>(m_new);
            alpha[r] = exp2f(m[r] - m_new);
            l[r] *= alpha[r];
            for (int x = 0; x < KEYS; ++x) l[r] += S[r][x] = exp2f(S[r][x] - m_new);  // S becomes P
            m[r] = m_new;
        }

        for (int r = 0; r < 4; ++r) {
            const float a = SHFL(alpha[r % 2], r / 2);
            O[r] = float4{a * O[r].x, a * O[r].y, a * O[r].z, a * O[r].w};
        }
#pragma unroll
        for (int j = 0; j < BC; j += GROUPS) {
            const float4 b = V[(j + group) * CHUNKS + column];
            for (int r = 0; r < 4; ++r) {
                const float p = SHFL(S[r % 2][j / 16], 2 * (j % 16 + group) + r / 2);
                O[r].x += p * b.x;
                O[r].y += p * b.y;
                O[r].z += p * b.z;
                O[r].w += p * b.w;
            }
        }
    }

    for (int r = 0; r < 2; ++r) l[r] = 1.0f / divisor(lanes_sum<16, 2>(l[r]));
    for (int r = 0; r < 4; ++r) {
        const float inverse_l = SHFL(l[r % 2], r / 2);
        const float4 sum = {lanes_sum<GROUPS, LANES>(O[r].x), lanes_sum<GROUPS, LANES>(O[r].y),
                            lanes_sum<GROUPS, LANES>(O[r].z), lanes_sum<GROUPS, LANES>(O[r].w)};
        if (t.row0 + warp_row + r < p.Nq && lane < CHUNKS)
            reinterpret_cast<float4*>(o)[(warp_row + r) * CHUNKS + lane] =
                float4{inverse_l * sum.x, inverse_l * sum.y, inverse_l * sum.z, inverse_l * sum.w};
    }
}
