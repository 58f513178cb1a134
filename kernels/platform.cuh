#pragma once
// Lanes and what all kernels are compiled with, for CUDA and HIP. No standard headers, so that NVRTC and hiprtc compile the
// text as it is. The loader defines D (head size), BR, BC (rows and keys of a tile) and THREADS (of a block).

#ifdef __HIP__  // a 64-lane wavefront works as two warps of 32: width 32 keeps them apart, no mask is needed
#define FULL_WARP 0xffffffffffffffffull
#define SHFL(value, lane) __shfl(value, lane, 32)
#define SHFL_XOR(value, bits) __shfl_xor(value, bits, 32)
#define ANY(condition) __any(condition)  // of both warps: true for more rows than necessary
#else
#define FULL_WARP 0xffffffffu
#define SHFL(value, lane) __shfl_sync(FULL_WARP, value, lane)
#define SHFL_XOR(value, bits) __shfl_xor_sync(FULL_WARP, value, bits)
#define ANY(condition) __any_sync(FULL_WARP, condition)
#endif

// For a kernel that does not count its registers. Before 7.5 the compiler would spill some, to have more blocks at a time.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750
#define LAUNCH_BOUNDS __launch_bounds__(THREADS, 1)
#else
#define LAUNCH_BOUNDS __launch_bounds__(THREADS)
#endif

// The second number of __launch_bounds__, blocks that a multiprocessor must have room for: HIP means something else by it.
#ifdef __HIP__
#define RESIDENT(blocks) 1
#else
#define RESIDENT(blocks) (blocks)
#endif

#define LOG2E 1.44269504088896341f  // the scores carry this factor, so that exp(s) is exp2f(s): one instruction
#define LN2 0.693147180559945309f

static_assert(D >= 4 && D <= 256 && D % 4 == 0, "the head size must be a multiple of 4 from 4 to 256");
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

// A condition that is known when a lambda is compiled.
template <bool X> struct Bool { static constexpr bool value = X; };
