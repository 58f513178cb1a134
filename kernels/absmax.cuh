#pragma once
// The largest |element| of Q, of K and of V, and the largest norm of a row of Q and of K, found by the threads that load them
// anyway: the error bound follows from them.
//
// They are kept as their bits, which are ordered as magnitudes are: NaN is above infinity, infinity above numbers. A norm is
// kept squared, each square rounded up to a multiple of 2^-7. Sums of these are exact up to 2^16, whatever their order, so that
// every kernel finds the same; what is larger is only known to be so.

#include "platform.cuh"
#include "ptx.cuh"

enum Found { Q_TOP, Q_SQUARES, K_TOP, K_SQUARES, V_TOP, FOUND };  // the numbers, in their order in p.absmax
enum Counts { STARTED = FOUND, CLAIMS };  // behind them: blocks that started (streamk.cuh), tiles that are claimed (producers.cuh)
struct Largest { unsigned top = 0, squares = 0; };                // of a matrix

constexpr float SQUARES_FROM = 0x1p16f;  // where a float's last bit is 2^-7, up to twice as much
__device__ __forceinline__ float add_square(float sum, float x) { return __fmaf_ru(x, x, sum); }
// The squares of a row as bits, from LANES neighbouring lanes' sums that began at SQUARES_FROM.
template <int LANES> __device__ __forceinline__ unsigned row_squares(float sum) {
    return __float_as_uint(lanes_sum<LANES>(sum - SQUARES_FROM));
}

__device__ __forceinline__ unsigned abs_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }
__device__ __forceinline__ unsigned recorded_at(const unsigned* absmax, int n) { return ((const volatile unsigned*)absmax)[n]; }
// What a warp has found: lane n holds number n, in one register.
struct WarpAbsmax {
    unsigned found = 0;
    __device__ __forceinline__ static unsigned recorded(const unsigned* absmax) {  // lane n's number, by all warps so far
        return recorded_at(absmax, min(threadIdx.x % 32, FOUND - 1u));
    }
    __device__ __forceinline__ void add(int n, unsigned top) {
        top = warp_max(top);
        if (threadIdx.x % 32 == n) found = max(found, top);
    }
    __device__ __forceinline__ void add(int n, const Largest& r) { add(n, r.top), add(n + 1, r.squares); }
    // The comparison saves most warps the atomic: thousands would queue for one address.
    __device__ __forceinline__ void record(unsigned* absmax, unsigned before) {
        if (threadIdx.x % 32 < FOUND && found > before) atomicMax(absmax + threadIdx.x % 32, found);
    }
};
// The same with one atomic a block: each warp stores what it found in shared memory (add); after a barrier, thread n records
// number n, from `first` on.
struct BlockAbsmax {
    static constexpr int WARPS = 256 / 32;
    unsigned* found;  // of each number, one a warp
    unsigned before;
    __device__ __forceinline__ static bool records(int first) { return first <= threadIdx.x && threadIdx.x < FOUND; }
    __device__ __forceinline__ void begin(const unsigned* absmax, int first) {
        before = records(first) ? recorded_at(absmax, threadIdx.x) : 0;
    }
    __device__ __forceinline__ void add(int n, unsigned top) {
        top = warp_max(top);
        if (threadIdx.x % 32 == 0) found[n * WARPS + threadIdx.x / 32] = top;
    }
    __device__ __forceinline__ void add(int n, const Largest& r) { add(n, r.top), add(n + 1, r.squares); }
    __device__ __forceinline__ void record_all(unsigned* absmax, int first) {
        if (!records(first)) return;
        unsigned top = 0;
        UNROLL for (int n = 0; n < WARPS; n++) top = max(top, found[threadIdx.x * WARPS + n]);
        if (top > before) atomicMax(absmax + threadIdx.x, top);
    }
};
