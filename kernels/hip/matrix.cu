// matrix: fp32 attention on the matrix cores of AMD's GPUs (MI100, MI200): both products are v_mfma_f32_32x32x2f32.
//
// Like: float64
// Tile: BR=128 BC=32 THREADS=256
//
// Idea:     A wavefront owns 32 rows, and all its 64 lanes work as one team. It computes S and O transposed, S' = K Q' and
//           O' = V' P': the matrix cores leave a row's scores in two lanes, l and l + 32, 16 keys each, which is just how
//           they take P in the next product. So P never leaves its registers, and m, l and O of a row stay in two lanes.
// Geometry: B * ceil(N/BR) blocks of 2*BR threads; BC = 32 keys a tile, the side of a matrix product.
// Shared:   K and V, twice: 16*BC*d bytes, 32 KB at d = 64. The next tile comes through registers while this one is used.
//           K's 16-byte chunks are swizzled (SWIZZLED), so that eight rows lie in eight different quarters of the banks.
// Limits:   d a multiple of 8, up to 120. No parts of keys: few long sequences leave compute units idle.
// Source:   AMD, "CDNA 2 instruction set architecture" (layout of operands); S' and O' as in Triton's backend for AMD.
// Before:   flash. It needs P and Q in shared memory, so 64 KB hold one block of two wavefronts, and two of four SIMDs
//           idle; here Q, S and P lie in registers, of which a lane has 512, and two blocks of four wavefronts fit.

#include "matrix.cuh"
#include "softmax.cuh"
#include "schedule.cuh"

#ifndef SWIZZLED  // 0: K as it is, for comparison: eight lanes that load together meet in the same banks
#define SWIZZLED 1
#endif
#ifndef LAZY  // keep m until P could pass 2^LAZY; 0: rescale whenever m grows
#define LAZY 8
#endif

constexpr int LANES = 64, SIDE = 32;          // of a wavefront; of a matrix product
constexpr int HALF = D / 2, CHUNKS = D / 4;   // columns of Q that a lane holds; 16-byte chunks of a row
constexpr int PANELS = ceil_div(D, SIDE);     // of O's columns
constexpr int COPIES = ceil_div(2 * BC * CHUNKS, THREADS);  // chunks of K and V that a thread brings

static_assert(D % 8 == 0, "the head size must be a multiple of 8");
static_assert(BC == SIDE && THREADS == BR / SIDE * LANES, "a wavefront must own 32 rows, a tile have 32 keys");

// Where chunk c of a key's row lies. Eight neighbouring keys have eight orders, where d is a multiple of 32.
constexpr int TWOS = CHUNKS % 8 == 0 ? 3 : CHUNKS % 4 == 0 ? 2 : 1;
__device__ __forceinline__ int chunk_of(int key, int c)
{
    return key * CHUNKS + (SWIZZLED ? c ^ (key >> (3 - TWOS) & ((1 << TWOS) - 1)) : c);
}
// The key, or the column of O in its panel, of a lane's n-th sum.
__device__ __forceinline__ int place_of(int n, int half) { return 8 * (n / 4) + 4 * half + n % 4; }

// A tile of K and V on its way: zeros behind the last key.
struct Copy {
    float4 chunk[COPIES];
    __device__ __forceinline__ void load(const float* k, const float* v, int keys) {
        UNROLL for (int n = 0; n < COPIES; n++) {
            const int e = threadIdx.x + n * THREADS, at = e % (BC * CHUNKS);
            const float4* from = (const float4*)(e < BC * CHUNKS ? k : v);
            chunk[n] = e < 2 * BC * CHUNKS && at < keys * CHUNKS ? from[at] : float4{0, 0, 0, 0};
        }
    }
    __device__ __forceinline__ void store(float4* K, float4* V) const {
        UNROLL for (int n = 0; n < COPIES; n++) {
            const int e = threadIdx.x + n * THREADS, at = e % (BC * CHUNKS);
            if (e < BC * CHUNKS) K[chunk_of(at / CHUNKS, at % CHUNKS)] = chunk[n];
            else if (e < 2 * BC * CHUNKS) V[at] = chunk[n];
        }
    }
};

// HIP: two wavefronts a SIMD, with 256 registers a lane; above d = 64, where shared memory holds one block, one with 512.
extern "C" __global__ void __launch_bounds__(THREADS, D > 64 ? 1 : 2)
matrix(const Params p)
{
    extern __shared__ float4 shared[];
    const Task t = task_of(blockIdx.x, p);
    const int lane = threadIdx.x % LANES, half = lane / SIDE, row = threadIdx.x / LANES * SIDE + lane % SIDE;
    const float *k = row_of(p.k, t.batch, 0), *v = row_of(p.v, t.batch, 0);
    const int keys = last_key(p, t);

    Copy copy;
    copy.load(k, v, p.Nk);
    float Q[HALF];  // of the lane's row, in units of log2
    const float4* q = (const float4*)(row_of(p.q, t.batch, t.row0 + row) + half * HALF);
    UNROLL for (int n = 0; n < HALF / 4; n++) {
        const float4 x = t.row0 + row < p.Nq ? q[n] : float4{0, 0, 0, 0};
        const float f = p.scale * LOG2E;
        Q[4 * n] = f * x.x, Q[4 * n + 1] = f * x.y, Q[4 * n + 2] = f * x.z, Q[4 * n + 3] = f * x.w;
    }
    float m = BELOW_ALL_SCORES, l = 0;  // l: of the keys in this lane
    Sums O[PANELS];
    UNROLL for (int x = 0; x < PANELS; x++)
        UNROLL for (int n = 0; n < 16; n++) O[x][n] = 0;
    copy.store(shared, shared + BC * CHUNKS);
    __syncthreads();

#pragma unroll 1
    for (int key0 = 0, stage = 0; key0 < keys; key0 += BC, stage ^= 1) {
        const float4* K = shared + stage * 2 * BC * CHUNKS;
        const float* V = (const float*)(K + BC * CHUNKS);
        const bool more = key0 + BC < keys;
        if (more) copy.load(k + (long long)(key0 + BC) * D, v + (long long)(key0 + BC) * D, p.Nk - key0 - BC);

        Sums S;
        UNROLL for (int n = 0; n < 16; n++) S[n] = 0;
        UNROLL for (int n = 0; n < HALF / 4; n++) {
            const float4 x = K[chunk_of(lane % SIDE, half * (HALF / 4) + n)];
            S = multiply_add(x.x, Q[4 * n], S);
            S = multiply_add(x.y, Q[4 * n + 1], S);
            S = multiply_add(x.z, Q[4 * n + 2], S);
            S = multiply_add(x.w, Q[4 * n + 3], S);
        }
        const Mask mask = mask_at(p, t.row0, key0, p.Nk - key0);
        if (!mask.is_full(BC))
            UNROLL for (int n = 0; n < 16; n++)
                if (!mask.allows(row, place_of(n, half))) S[n] = MINUS_INFINITY;

        float top = S[0];
        UNROLL for (int n = 1; n < 16; n++) top = fmaxf(top, S[n]);
        top = fmaxf(top, __shfl_xor(top, SIDE, LANES));
        if (ANY(top > m + LAZY)) {
            const float new_m = fmaxf(m, top), shrink = exp2_fast(m - new_m);
            m = new_m, l *= shrink;
            UNROLL for (int x = 0; x < PANELS; x++)
                UNROLL for (int n = 0; n < 16; n++) O[x][n] *= shrink;
        }
        UNROLL for (int n = 0; n < 16; n++) l += S[n] = exp2_fast(S[n] - m);  // S becomes P

        UNROLL for (int x = 0; x < PANELS; x++) {
            const int column = min(x * SIDE + lane % SIDE, D - 1);  // sums of columns past the end are not stored
            UNROLL for (int n = 0; n < 16; n++) O[x] = multiply_add(V[place_of(n, half) * D + column], S[n], O[x]);
        }
        float4* next = shared + (stage ^ 1) * 2 * BC * CHUNKS;
        if (more) copy.store(next, next + BC * CHUNKS);
        __syncthreads();
    }

    const float f = 1 / divisor(l + __shfl_xor(l, SIDE, LANES));
    if (t.row0 + row >= p.Nq) return;
    float* o = row_of(p.o, t.batch, t.row0 + row);
    UNROLL for (int x = 0; x < PANELS; x++)
        UNROLL for (int n = 0; n < 16; n += 4) {
            const int column = x * SIDE + place_of(n, half);
            if (column < D)
                *(float4*)(o + column) = float4{O[x][n] * f, O[x][n + 1] * f, O[x][n + 2] * f, O[x][n + 3] * f};
        }
}
