// CUDA C++ as plain C++: what kernels use of the language and its library. g++ and clang++ read it before a .cu file.
//
// With __HIP__ a warp has 64 lanes and shuffles take no mask, as on AMD's data-centre GPUs.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "runtime.h"

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define __constant__ static
#define __shared__ thread_local  // static ones lie in this thread of the system; extern ones are linked to the window
#if !defined(__clang__)
#define EMU_UNWATCHED __attribute__((noinline, no_sanitize("thread", "undefined")))
#else
#define EMU_UNWATCHED __attribute__((noinline, no_sanitize("thread", "undefined"), disable_sanitizer_instrumentation))
#endif

// ---- Vectors

struct float2 { float x, y; } __attribute__((aligned(8)));
struct float3 { float x, y, z; };
struct float4 { float x, y, z, w; } __attribute__((aligned(16)));
struct double2 { double x, y; } __attribute__((aligned(16)));
struct int2 { int x, y; } __attribute__((aligned(8)));
struct int4 { int x, y, z, w; } __attribute__((aligned(16)));
struct uint2 { unsigned x, y; } __attribute__((aligned(8)));
struct uint3 { unsigned x, y, z; };
struct uint4 { unsigned x, y, z, w; } __attribute__((aligned(16)));
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// Constant as a thread sees them: its compiler may keep them over a barrier.
extern const uint3 threadIdx __asm__("hw4_threadIdx"), blockIdx __asm__("hw4_blockIdx");
extern const dim3 blockDim __asm__("hw4_blockDim"), gridDim __asm__("hw4_gridDim");
#define warpSize (emu::lanes)  // as the launch has it

// ---- Arithmetic

template <class A, class B> inline auto min(A a, B b) -> decltype(true ? A() : B()) { return b < a ? b : a; }
template <class A, class B> inline auto max(A a, B b) -> decltype(true ? A() : B()) { return a < b ? b : a; }
template <class To, class From> inline To emu_same_bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
inline float __int_as_float(int x) { return emu_same_bits<float>(x); }
inline int __float_as_int(float x) { return emu_same_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return emu_same_bits<float>(x); }
// Four bytes of eight: those of x are 0 to 3, those of y 4 to 7, and a digit of `which` names each, the lowest first.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned which) {
    const unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned r = 0;
    for (int n = 0; n < 4; n++) r |= (unsigned)(both >> (which >> 4 * n & 7) * 8 & 0xff) << 8 * n;
    return r;
}
inline unsigned __float_as_uint(float x) { return emu_same_bits<unsigned>(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __fmaf_ru(float x, float y, float z) {  // rounded up
    const double product = (double)x * y, sum = product + z, error = product - (sum - z) + (z - (sum - (sum - z)));
    const float near = (float)sum;
    return near < sum || (near == sum && error > 0) ? nextafterf(near, INFINITY) : near;
}
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
template <class T> inline T __ldg(const T* p) { return *p; }

// ---- Atomics

namespace emu {
template <class T, class F> EMU_UNWATCHED T change(T* p, F next, bool& changed) {
    const T old = *p;
    *p = next(old);
    changed = memcmp(p, &old, sizeof old) != 0;
    memory_changes += changed;
    return old;
}
template <class T, class F> inline T atomic(T* p, F next, unsigned how = ANY_ATOMIC) {
    atomic_begins(p, sizeof(T), how);
    bool changed;
    const T old = change(p, next, changed);
    atomic_ends(p, sizeof(T), how, changed);
    return old;
}
template <class T> struct Identity { using type = T; };
template <class T> using Same = typename Identity<T>::type;  // of an argument whose type the pointer before it tells
}  // namespace emu
#define EMU_ATOMIC_AS(name, how, next)                                                        \
    template <class T> inline T name(T* p, emu::Same<T> x) {                                  \
        return emu::atomic(p, [x](T old) -> T { (void)old; return next; }, how);              \
    }
#define EMU_ATOMIC_OF(name, how, next)                                                        \
    EMU_ATOMIC_AS(name, how, next) EMU_ATOMIC_AS(name##_system, how, next)                    \
    EMU_ATOMIC_AS(name##_block, (how) | emu::BLOCK_SCOPE, next)
#define EMU_ATOMIC(name, next) EMU_ATOMIC_OF(name, emu::ANY_ATOMIC, next)
EMU_ATOMIC(atomicAdd, old + x)
EMU_ATOMIC(atomicSub, old - x)
EMU_ATOMIC(atomicMax, old < x ? x : old)
EMU_ATOMIC(atomicMin, x < old ? x : old)
EMU_ATOMIC_OF(atomicExch, emu::EXCHANGES, x)
EMU_ATOMIC(atomicOr, old | x)
EMU_ATOMIC(atomicAnd, old & x)
#define EMU_CAS(name, how)                                                                    \
    template <class T> inline T name(T* p, emu::Same<T> expected, emu::Same<T> x) {           \
        return emu::atomic(p, [=](T old) { return old == expected ? x : old; }, how);         \
    }
EMU_CAS(atomicCAS, emu::COMPARES) EMU_CAS(atomicCAS_system, emu::COMPARES)
EMU_CAS(atomicCAS_block, emu::COMPARES | emu::BLOCK_SCOPE)
inline void __threadfence() { emu::fence(); }
inline void __threadfence_block() { emu::fence(emu::OF_BLOCK); }

// ---- Barriers

inline void __syncthreads(EMU_HERE) { emu::barrier(EMU_SITE("__syncthreads"), 0, 0); }
inline int __syncthreads_count(int predicate, EMU_HERE) {
    return emu::barrier(EMU_SITE("__syncthreads_count"), 0, 0, predicate).yes;
}
inline int __syncthreads_or(int predicate, EMU_HERE) {
    return emu::barrier(EMU_SITE("__syncthreads_or"), 0, 0, predicate).yes > 0;
}
inline int __syncthreads_and(int predicate, EMU_HERE) {
    const emu::Votes votes = emu::barrier(EMU_SITE("__syncthreads_and"), 0, 0, predicate);
    return votes.yes == votes.all;
}
#ifdef __HIP__
#define EMU_MASK uint64_t
#else
#define EMU_MASK uint32_t
#endif
inline void __syncwarp(uint64_t mask = emu::ALIVE, EMU_HERE) { emu::sync_warp(EMU_SITE("__syncwarp"), mask); }

// ---- Shuffles and votes

namespace emu {
template <class T> struct Shuffle {
    T value, result;
    int from;
    bool absent;
    static void all(void* const* lane, int n) {
        for (int i = 0; i < n; i++) {
            if (!lane[i]) continue;
            Shuffle& mine = *(Shuffle*)lane[i];
            const Shuffle* other = (const Shuffle*)lane[mine.from];
            mine.absent = !other;
            mine.result = other ? other->value : mine.value;
        }
    }
};
template <class T> inline T shuffle(Site site, uint64_t mask, T value, int from) {
    static_assert(sizeof(T) <= 8, "a shuffle moves 8 bytes at most");
    Shuffle<T> mine{value, value, from, false};
    meet(site, WARP, mask, &mine, Shuffle<T>::all);
    if (mine.absent) report_absent(site, from);
    return mine.result;
}
inline int segment(int width) { return lane() & ~(width - 1); }
inline int within(int from, int width) {
    return from < segment(width) || from >= segment(width) + width ? lane() : from;
}
struct Ballot {
    uint64_t bit, yes, all;
    static void count(void* const* lane, int n) {
        uint64_t yes = 0, all = 0;
        for (int i = 0; i < n; i++)
            if (lane[i]) all |= 1ull << i, yes |= ((Ballot*)lane[i])->bit << i;
        for (int i = 0; i < n; i++)
            if (lane[i]) ((Ballot*)lane[i])->yes = yes, ((Ballot*)lane[i])->all = all;
    }
};
inline Ballot ballot(Site site, uint64_t mask, bool predicate) {
    Ballot mine{predicate, 0, 0};
    meet(site, WARP, mask, &mine, Ballot::count);
    return mine;
}
}  // namespace emu
#define EMU_WITH_MASK template <class Mask, class T> inline
#define EMU_MASKED static_assert(sizeof(Mask) == sizeof(EMU_MASK), "CUDA's masks have 32 bits, HIP's have 64")
EMU_WITH_MASK T __shfl_sync(Mask mask, T x, int from, int width = emu::lanes, EMU_HERE) {
    EMU_MASKED;
    return emu::shuffle(EMU_SITE("__shfl_sync"), mask, x, emu::segment(width) + (from & (width - 1)));
}
EMU_WITH_MASK T __shfl_xor_sync(Mask mask, T x, int bits, int width = emu::lanes, EMU_HERE) {
    EMU_MASKED;
    return emu::shuffle(EMU_SITE("__shfl_xor_sync"), mask, x, emu::within(emu::lane() ^ bits, width));
}
EMU_WITH_MASK T __shfl_up_sync(Mask mask, T x, unsigned by, int width = emu::lanes, EMU_HERE) {
    EMU_MASKED;
    return emu::shuffle(EMU_SITE("__shfl_up_sync"), mask, x, emu::within(emu::lane() - (int)by, width));
}
EMU_WITH_MASK T __shfl_down_sync(Mask mask, T x, unsigned by, int width = emu::lanes, EMU_HERE) {
    EMU_MASKED;
    return emu::shuffle(EMU_SITE("__shfl_down_sync"), mask, x, emu::within(emu::lane() + (int)by, width));
}
template <class Mask> inline int __any_sync(Mask mask, int predicate, EMU_HERE) {
    EMU_MASKED;
    return emu::ballot(EMU_SITE("__any_sync"), mask, predicate).yes != 0;
}
template <class Mask> inline int __all_sync(Mask mask, int predicate, EMU_HERE) {
    EMU_MASKED;
    const emu::Ballot votes = emu::ballot(EMU_SITE("__all_sync"), mask, predicate);
    return votes.yes == votes.all;
}
template <class Mask> inline Mask __ballot_sync(Mask mask, int predicate, EMU_HERE) {
    EMU_MASKED;
    return (Mask)emu::ballot(EMU_SITE("__ballot_sync"), mask, predicate).yes;
}
#ifdef __HIP__
template <class T> inline T __shfl(T x, int from, int width = 64, EMU_HERE) {
    return emu::shuffle(EMU_SITE("__shfl"), emu::ALIVE, x, emu::segment(width) + (from & (width - 1)));
}
inline int __any(int predicate, EMU_HERE) { return emu::ballot(EMU_SITE("__any"), emu::ALIVE, predicate).yes != 0; }
inline int __all(int predicate, EMU_HERE) {
    const emu::Ballot votes = emu::ballot(EMU_SITE("__all"), emu::ALIVE, predicate);
    return votes.yes == votes.all;
}
inline uint64_t __ballot(int predicate, EMU_HERE) {
    return emu::ballot(EMU_SITE("__ballot"), emu::ALIVE, predicate).yes;
}
template <class T> inline T __shfl_xor(T x, int bits, int width = 64, EMU_HERE) {
    return emu::shuffle(EMU_SITE("__shfl_xor"), emu::ALIVE, x, emu::within(emu::lane() ^ bits, width));
}
#endif

// ---- A clock: each reading is one later than the one before

inline long long clock64() {
    static long long now = 0;
    return ++now;
}

// ---- Shared memory by number

inline unsigned long long __cvta_generic_to_shared(const void* p) {
    return (unsigned long long)((const char*)p - emu::shared);
}
