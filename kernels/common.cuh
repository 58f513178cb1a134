// What every rung needs and no rung is about. No headers, so that NVRTC and hiprtc compile the text as it is.
// The loader defines D (head size), BR, BC (rows and keys of a tile) and THREADS (of a block).

#ifdef __HIP__  // a 64-lane wavefront works as two warps of 32: width 32 keeps them apart, no mask is needed
#define SHFL(value, lane) __shfl(value, lane, 32)
#define SHFL_XOR(value, bits) __shfl_xor(value, bits, 32)
#else
#define FULL_WARP 0xffffffffu
#define SHFL(value, lane) __shfl_sync(FULL_WARP, value, lane)
#define SHFL_XOR(value, bits) __shfl_xor_sync(FULL_WARP, value, bits)
#endif

#ifndef CAUSAL
#define CAUSAL 0
#endif

#define MINUS_INFINITY __int_as_float(0xff800000)
#define LOG2E 1.44269504088896341f  // the scores carry this factor, so that exp(s) is exp2f(s): one instruction

static_assert(D >= 4 && D <= 128 && D % 4 == 0, "the head size must be a multiple of 4 from 4 to 128");
static_assert(THREADS % 32 == 0 && THREADS <= 1024, "a block must be whole warps, 1024 threads at most");

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

// Maximum and sum over COUNT lanes that are STEP apart; every one of them gets the result.
template <int COUNT, int STEP = 1> __device__ inline float lanes_max(float x)
{
    for (int bit = STEP; bit < COUNT * STEP; bit *= 2) x = fmaxf(x, SHFL_XOR(x, bit));
    return x;
}

template <int COUNT, int STEP = 1> __device__ inline float lanes_sum(float x)
{
    for (int bit = STEP; bit < COUNT * STEP; bit *= 2) x += SHFL_XOR(x, bit);
    return x;
}

// Brings ROWS rows to shared memory, STRIDE floats apart, times a factor; rows past the end become zeros.
template <int ROWS, int STRIDE>
__device__ inline void load_rows(float* tile, const float* rows, int rows_left, float factor = 1.0f)
{
    for (int e = threadIdx.x; e < ROWS * D; e += THREADS)
        tile[e / D * STRIDE + e % D] = e / D < rows_left ? factor * rows[e] : 0.0f;
}
