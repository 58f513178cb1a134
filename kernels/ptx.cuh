#pragma once
// Single PTX instructions that C++ has no words for: NVIDIA only, so apart from platform.cuh.

#define UNROLL _Pragma("unroll")

#ifdef __CUDA_ARCH__  // what is compiled for; nvcc reads the text for the host, too
#define ARCH __CUDA_ARCH__
#else
#define ARCH __CUDA_ARCH_LIST__
#endif

// 2^x in one instruction; 2^-inf is 0.
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Its logarithm in base 2, to 2^-22; -inf of 0.
__device__ __forceinline__ float log2_fast(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// a b + c, at least 0 and at most 1, and 0 for NaN; and rounded down. One instruction each.
__device__ __forceinline__ float fma_saturated(float a, float b, float c) {
    float r;
    asm("fma.rn.ftz.sat.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
    return r;
}
__device__ __forceinline__ float fma_down(float a, float b, float c) {
    float r;
    asm("fma.rm.ftz.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
    return r;
}

// The larger one; NaN if one is.
__device__ __forceinline__ float larger_or_nan(float a, float b) {
    float r;
    asm("max.NaN.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
// What was computed of these numbers is computed before what follows, the wait for a product included: across an event, which
// nothing counts, the compiler moves no instruction; across a fence it does.
template <int N> __device__ __forceinline__ void keep_order(float (&x)[N][4]) {
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 4; e++) asm volatile("" : "+f"(x[n][e])::"memory");
    asm volatile("pmevent 0;" ::: "memory");
}

// Shared memory by 32-bit byte address: an exclusive-or on it (a swizzle) stays one instruction.
__device__ __forceinline__ unsigned shared_address(const void* p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

struct Four { float v[4]; };

__device__ __forceinline__ Four load_shared(unsigned from) {
    Four x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.v[0]), "=f"(x.v[1]), "=f"(x.v[2]), "=f"(x.v[3]) : "r"(from) : "memory");
    return x;
}
__device__ __forceinline__ float2 load_shared2(unsigned from) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(from) : "memory");
    return x;
}
__device__ __forceinline__ unsigned load_shared16(unsigned from) {
    unsigned short x;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(from) : "memory");
    return x;
}
__device__ __forceinline__ void store_shared(unsigned to, float a, float b) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(a), "f"(b) : "memory");
}
__device__ __forceinline__ void store_shared(unsigned to, float a, float b, float c, float d) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}
__device__ __forceinline__ void store_shared(unsigned to, float4 x) { store_shared(to, x.x, x.y, x.z, x.w); }
__device__ __forceinline__ void store_shared(unsigned to, float a) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(a) : "memory");
}
__device__ __forceinline__ void store_shared(unsigned to, uint4 x) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
__device__ __forceinline__ void store_shared(unsigned to, uint2 x) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(to), "r"(x.x), "r"(x.y) : "memory");
}
__device__ __forceinline__ void store_shared(unsigned to, unsigned x) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
__device__ __forceinline__ void store_shared(unsigned to, unsigned short x) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(x) : "memory");
}

// Stores to global memory what no thread reads soon: it leaves the caches first.
__device__ __forceinline__ void store_once(float* to, float4 x) {
    asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w) : "memory");
}

// The block's and the thread's number, read again: they take no registers in between.
__device__ __forceinline__ void read_again(unsigned& block, unsigned& thread) {
    asm volatile("mov.u32 %0, %%ctaid.x; mov.u32 %1, %%tid.x;" : "=r"(block), "=r"(thread));
}

#if ARCH >= 800
// 16 bytes from global to shared memory past the registers; zeros, and no read, when `inside` is false.
__device__ __forceinline__ void copy16_async(unsigned to, const float* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
// The same for what no block reads again: it leaves the L2 cache first.
__device__ __forceinline__ void copy16_once(unsigned to, const float* from, bool inside) {
    asm volatile("{.reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0; "
                 "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, policy;}"
                 ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
// As many as there are, 16 at most; zeros for the rest.
__device__ __forceinline__ void copy16_part(unsigned to, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(to), "l"(from), "r"(max(0, min(bytes, 16))) : "memory");
}
__device__ __forceinline__ void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// The copies since the last call are a group; wait until at most LATER groups of this thread have not arrived.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LATER> __device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
}
// The largest of a warp's numbers.
__device__ __forceinline__ unsigned warp_max(unsigned x) {
    asm volatile("redux.sync.max.u32 %0, %0, 0xffffffff;" : "+r"(x));
    return x;
}
#endif

// Named barrier `id`, for the 64 threads of two warps.
__device__ __forceinline__ void pair_sync(int id) { asm volatile("bar.sync %0, 64;" ::"r"(id) : "memory"); }

// Programmatic dependent launch: the next launch may begin; it waits (griddep_wait) until all writes of the launches before are
// visible. Both do nothing where launches do not overlap.
__device__ __forceinline__ void griddep_launch() {
#if ARCH >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void griddep_wait() {
#if ARCH >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
