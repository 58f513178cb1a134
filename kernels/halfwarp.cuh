#pragma once
// The kernel of the course's best report, as its text describes it: half a warp owns two rows, each of its lanes a slice of
// their columns, and only K and V lie in shared memory. halfwarp.cu is that; the other files switch one thing each.

#include "schedule.cuh"

#ifndef Q_COALESCED  // whether neighbouring lanes load neighbouring floats of Q, 16 bytes each, and keep them
#define Q_COALESCED 1
#endif
#ifndef IN_REGISTERS  // whether the compiler knows every index of Q and O, so that they can lie in registers
#define IN_REGISTERS 1
#endif
#ifndef KEYS_IN_PARALLEL  // whether a lane computes whole scores, of its own keys of a tile, instead of a slice of every score
#define KEYS_IN_PARALLEL 0
#endif
#ifndef VECTOR_LOADS  // whether Q, K, V and O move four floats at a time (two up to d = 32), in device and in shared memory
#define VECTOR_LOADS 1
#endif
#ifndef TILES_COALESCED  // whether neighbouring lanes load neighbouring vectors of K and V from device memory, or of other rows
#define TILES_COALESCED 1
#endif
#ifndef PADDED  // whether rows of K are an odd number of vectors apart, so that lanes that read different rows use all banks
#define PADDED 1
#endif

#if IN_REGISTERS
#define EACH _Pragma("unroll")
#else  // as where d is known at run time only: an index that is no constant puts the whole array into local memory
#define EACH _Pragma("unroll 1")
#endif

static_assert(BC % 16 == 0, "the 16 lanes of a half-warp must divide the keys of a tile evenly");
static_assert(THREADS == 8 * BR, "half a warp must own two rows");

constexpr int ROWS = 2;                   // of half a warp
constexpr int VECTOR = !VECTOR_LOADS ? 1 : D > 32 ? 4 : 2;  // floats of one load
constexpr int VECTORS = D / VECTOR;       // of a row
constexpr int SLICE = ceil_div(VECTORS, 16);  // of which a lane owns so many: its number, 16 more, ...
constexpr int KEYS = BC / 16;             // of a tile, that a lane owns where keys are in parallel
constexpr int K_STRIDE = KEYS_IN_PARALLEL && PADDED ? VECTORS | 1 : VECTORS;

struct alignas(4 * VECTOR) Vector { float x[VECTOR]; };

__device__ __forceinline__ float dot(const Vector& a, const Vector& b, float sum)
{
    EACH for (int x = 0; x < VECTOR; ++x) sum += a.x[x] * b.x[x];
    return sum;
}

__device__ __forceinline__ Vector load_if(bool there, const Vector* from)  // else zeros
{
    Vector found = {};
    if (there) found = *from;
    return found;
}

// One row's state: a lane has m and l like its 15 neighbours, and its slice of O.
struct Row {
    float m, l;
    Vector O[SLICE];
    __device__ __forceinline__ void rescale(float m_new) {
        const float alpha = exp2f(m - m_new);
        l *= alpha;
        EACH for (int n = 0; n < SLICE; ++n) EACH for (int x = 0; x < VECTOR; ++x) O[n].x[x] *= alpha;
        m = m_new;
    }
    __device__ __forceinline__ void add(float p, const Vector* v, int lane) {
        EACH for (int n = 0; n < SLICE; ++n)
            EACH for (int x = 0; x < VECTOR; ++x) O[n].x[x] += p * v[min(lane + 16 * n, VECTORS - 1)].x[x];
    }
};

// A lane's slice of a row of Q, zeros past the end of the row.
__device__ __forceinline__ void load_slice(Vector (&to)[SLICE], const float* row, int lane)
{
#if Q_COALESCED
    EACH for (int n = 0; n < SLICE; ++n) {
        const int at = lane + 16 * n;
        to[n] = load_if(at < VECTORS, reinterpret_cast<const Vector*>(row) + at);
    }
#else  // a float at a time, neighbouring lanes 4 * VECTOR bytes apart
    EACH for (int n = 0; n < SLICE; ++n)
        EACH for (int x = 0; x < VECTOR; ++x) {
            const int c = (lane + 16 * n) * VECTOR + x;
            to[n].x[x] = c < D ? *static_cast<const volatile float*>(row + c) : 0.0f;
        }
#endif
}

// Every lane sums its slice of each score, shuffles add the slices up, and the softmax takes one key after the other.
__device__ __forceinline__ void take_keys_in_turn(
    const Vector (&Q)[ROWS][SLICE], Row (&rows)[ROWS], const Vector* K, const Vector* V, const Mask& mask, int row, int lane)
{
#pragma unroll 2
    for (int j = 0; j < BC; ++j) {
        float s[ROWS] = {};
        EACH for (int n = 0; n < SLICE; ++n)
            EACH for (int r = 0; r < ROWS; ++r)
                s[r] = dot(Q[r][n], K[j * K_STRIDE + min(lane + 16 * n, VECTORS - 1)], s[r]);
        EACH for (int r = 0; r < ROWS; ++r) {
            s[r] = lanes_sum<16>(s[r]);
            if (!mask.allows(row + r, j)) s[r] = MINUS_INFINITY;
            rows[r].rescale(fmaxf(rows[r].m, s[r]));
            const float p = exp2f(s[r] - rows[r].m);
            rows[r].l += p;
            rows[r].add(p, V + j * VECTORS, lane);
        }
    }
}

// A lane owns KEYS keys and computes whole scores; Q comes from the lanes that have it, by shuffles. One rescaling a tile.
__device__ __forceinline__ void take_keys_in_parallel(
    const Vector (&Q)[ROWS][SLICE], Row (&rows)[ROWS], const Vector* K, const Vector* V, const Mask& mask, int row, int lane)
{
    const int half = threadIdx.x & 16;  // the warp's lane that is the half's first
    float S[ROWS][KEYS] = {};
    EACH for (int n = 0; n < SLICE; ++n)
#pragma unroll 4
        for (int c = 0; c < min(16, VECTORS - 16 * n); ++c) {
            Vector q[ROWS];
            EACH for (int r = 0; r < ROWS; ++r)
                EACH for (int x = 0; x < VECTOR; ++x) q[r].x[x] = SHFL(Q[r][n].x[x], half + c);
            EACH for (int y = 0; y < KEYS; ++y) {
                const Vector k = K[(lane + 16 * y) * K_STRIDE + 16 * n + c];
                EACH for (int r = 0; r < ROWS; ++r) S[r][y] = dot(q[r], k, S[r][y]);
            }
        }
    EACH for (int r = 0; r < ROWS; ++r) {
        float top = rows[r].m;
        EACH for (int y = 0; y < KEYS; ++y) {
            if (!mask.allows(row + r, lane + 16 * y)) S[r][y] = MINUS_INFINITY;
            top = fmaxf(top, S[r][y]);
        }
        rows[r].rescale(lanes_max<16>(top));
        float sum = 0.0f;
        EACH for (int y = 0; y < KEYS; ++y) sum += S[r][y] = exp2f(S[r][y] - rows[r].m);  // S becomes P
        rows[r].l += lanes_sum<16>(sum);
    }
    EACH for (int y = 0; y < KEYS; ++y)
#pragma unroll 4
        for (int j = 0; j < 16; ++j)
            EACH for (int r = 0; r < ROWS; ++r) rows[r].add(SHFL(S[r][y], half + j), V + (16 * y + j) * VECTORS, lane);
}

__device__ __forceinline__ void attend_by_half_warps(const Params& p)
{
    extern __shared__ float4 shared[];
    Vector* K = reinterpret_cast<Vector*>(shared);
    Vector* V = K + BC * K_STRIDE;

    const Task t = task_of(blockIdx.x, p);
    const int lane = threadIdx.x % 16, row = threadIdx.x / 16 * ROWS;
    const Vector *k = reinterpret_cast<const Vector*>(row_of(p.k, t.batch, 0));
    const Vector *v = reinterpret_cast<const Vector*>(row_of(p.v, t.batch, 0));

    Vector Q[ROWS][SLICE];
    Row rows[ROWS];
    EACH for (int r = 0; r < ROWS; ++r) {
        load_slice(Q[r], row_of(p.q, t.batch, min(t.row0 + row + r, p.Nq - 1)), lane);
        rows[r].m = BELOW_ALL_SCORES, rows[r].l = 0.0f;
        EACH for (int n = 0; n < SLICE; ++n)
            EACH for (int x = 0; x < VECTOR; ++x) {
                Q[r][n].x[x] *= p.scale * LOG2E;
                rows[r].O[n].x[x] = 0.0f;
            }
    }

    for (int key0 = 0; key0 < last_key(p, t); key0 += BC) {
        __syncthreads();  // all threads have read the tile before
        for (int e = threadIdx.x; e < BC * VECTORS; e += THREADS) {
#if TILES_COALESCED
            const int j = e / VECTORS, c = e % VECTORS, n = e;
#else  // columns in turn, or the lanes would store all of them in the same banks
            const int j = e % BC, c = (e / BC + j) % VECTORS, n = j * VECTORS + c;
#endif
            const bool there = key0 + j < p.Nk;
            const long long at = (long long)key0 * VECTORS + n;
            K[j * K_STRIDE + c] = load_if(there, k + at);
            V[n] = load_if(there, v + at);
        }
        __syncthreads();
        const Mask mask = mask_at(p, t.row0, key0, p.Nk - key0);
#if KEYS_IN_PARALLEL
        take_keys_in_parallel(Q, rows, K, V, mask, row, lane);
#else
        take_keys_in_turn(Q, rows, K, V, mask, row, lane);
#endif
    }

    EACH for (int r = 0; r < ROWS; ++r) {
        if (t.row0 + row + r >= p.Nq) continue;
        float* o = row_of(p.o, t.batch, t.row0 + row + r);
        const float inverse_l = 1.0f / divisor(rows[r].l);
        EACH for (int n = 0; n < SLICE; ++n) {
            EACH for (int x = 0; x < VECTOR; ++x) rows[r].O[n].x[x] *= inverse_l;
            if (lane + 16 * n < VECTORS) reinterpret_cast<Vector*>(o)[lane + 16 * n] = rows[r].O[n];
        }
    }
}
