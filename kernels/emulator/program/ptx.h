// Single PTX instructions that a program has inline, as functions: `asm("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at))` becomes
// hw4_ptx::ld_shared_f32(x, at). hw4cli/emulator/program/ptx.py makes the calls, and takes the names from here.
#pragma once
#include "../numbers.h"

namespace hw4_ptx {
// An operand in brackets: a number in shared memory; or an address, as a pointer or as a number.
template <class T> inline char* at_shared(T from) { return emu::shared + (unsigned)(unsigned long long)from; }
template <class T> inline void* at_global(T from) { return (void*)(unsigned long long)from; }

template <class T> inline void ex2_approx_ftz_f32(T& y, float x) { y = exp2f(x); }
template <class T> inline void ex2_approx_f32(T& y, float x) { y = exp2f(x); }
template <class T> inline void lg2_approx_ftz_f32(T& y, float x) { y = log2f(x); }
template <class T> inline void lg2_approx_f32(T& y, float x) { y = log2f(x); }
template <class T> inline void rcp_approx_ftz_f32(T& y, float x) { y = 1 / x; }
template <class T> inline void rcp_approx_f32(T& y, float x) { y = 1 / x; }

// Two floats as numbers of 16 bits, the first in the upper half.
template <class T> inline void cvt_rn_f16x2_f32(T& r, float high, float low) {
    r = emu::float_to_half(high) << 16 | emu::float_to_half(low);
}
template <class T> inline void cvt_rn_bf16x2_f32(T& r, float high, float low) {
    r = emu::float_to_bfloat(high) << 16 | emu::float_to_bfloat(low);
}

// ---- Global memory, with a hint to the caches

template <class A> inline void st_global_cs_v4_f32(A to, float x, float y, float z, float w) {
    *(float4*)at_global(to) = float4{x, y, z, w};
}

// ---- Words by which blocks follow each other. Programs have no copy engine that a proxy's fence would be for.

template <class T, class A> inline void ld_acquire_gpu_global_s32(T& x, A from) {
    x = atomicAdd((int*)at_global(from), 0);
    __threadfence();
}
template <class A> inline void st_relaxed_gpu_global_s32(A to, int x) { atomicExch((int*)at_global(to), x); }
template <class A> inline void st_release_gpu_global_s32(A to, int x) {
    __threadfence();
    st_relaxed_gpu_global_s32(to, x);
}
template <class A> inline void red_relaxed_gpu_global_add_s32(A to, int x) { atomicAdd((int*)at_global(to), x); }
template <class A> inline void red_release_gpu_global_add_s32(A to, int x) {
    __threadfence();
    red_relaxed_gpu_global_add_s32(to, x);
}
inline void fence_proxy_async() {}
inline void fence_proxy_async_shared_cta() {}

// ---- Shared memory

template <class T, class A> inline void ld_shared_f32(T& x, A from) { x = *(const float*)at_shared(from); }
template <class T, class A> inline void ld_shared_u32(T& x, A from) { x = *(const unsigned*)at_shared(from); }
template <class T, class A> inline void ld_shared_v2_f32(T& x, T& y, A from) {
    const float2 f = *(const float2*)at_shared(from);
    x = f.x, y = f.y;
}
template <class T, class A> inline void ld_shared_v4_f32(T& x, T& y, T& z, T& w, A from) {
    const float4 f = *(const float4*)at_shared(from);
    x = f.x, y = f.y, z = f.z, w = f.w;
}
template <class T, class A> inline void ld_shared_v4_u32(T& x, T& y, T& z, T& w, A from) {
    const uint4 f = *(const uint4*)at_shared(from);
    x = f.x, y = f.y, z = f.z, w = f.w;
}
template <class A> inline void st_shared_f32(A to, float x) { *(float*)at_shared(to) = x; }
template <class A> inline void st_shared_u32(A to, unsigned x) { *(unsigned*)at_shared(to) = x; }
template <class A> inline void st_shared_u16(A to, unsigned short x) { *(unsigned short*)at_shared(to) = x; }
template <class A> inline void st_shared_v2_f32(A to, float x, float y) { *(float2*)at_shared(to) = float2{x, y}; }
template <class A> inline void st_shared_v4_f32(A to, float x, float y, float z, float w) {
    *(float4*)at_shared(to) = float4{x, y, z, w};
}
template <class A> inline void st_shared_v2_u32(A to, unsigned x, unsigned y) { *(uint2*)at_shared(to) = uint2{x, y}; }
template <class A> inline void st_shared_v4_u32(A to, unsigned x, unsigned y, unsigned z, unsigned w) {
    *(uint4*)at_shared(to) = uint4{x, y, z, w};
}

// ---- Asynchronous copies from global to shared memory: so many bytes, of which so many are read, and the rest is zeros

template <class A, class B> inline void cp_async_ca_shared_global(A to, B from, unsigned bytes, unsigned given) {
    emu::copy_async((unsigned)(unsigned long long)to, at_global(from), bytes, given);
}
template <class A, class B> inline void cp_async_ca_shared_global(A to, B from, unsigned bytes) {
    cp_async_ca_shared_global(to, from, bytes, bytes);
}
template <class A, class B> inline void cp_async_cg_shared_global(A to, B from, unsigned bytes, unsigned given) {
    cp_async_ca_shared_global(to, from, bytes, given);
}
template <class A, class B> inline void cp_async_cg_shared_global(A to, B from, unsigned bytes) {
    cp_async_ca_shared_global(to, from, bytes, bytes);
}
inline void cp_async_commit_group() { emu::copy_async_commit(); }
inline void cp_async_wait_group(unsigned later) { emu::copy_async_wait(later); }
inline void cp_async_wait_all() { emu::copy_async_wait(emu::WAIT_ALL); }

// ---- Launches do not overlap

inline void griddepcontrol_launch_dependents() {}
inline void griddepcontrol_wait() {}
}
