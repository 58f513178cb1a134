// Stands in for kernels/ptx.cuh where kernels run on the CPU: the same functions, in C++.

#if defined(__clang__)
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 1")
#endif
#define ARCH __CUDA_ARCH__

inline float exp2_fast(float x) { return exp2f(x); }
inline float log2_fast(float x) { return log2f(x); }
inline float fma_saturated(float a, float b, float c) {
    const float x = fmaf(a, b, c);
    return x > 0 ? fminf(x, 1) : 0;
}
inline float fma_down(float a, float b, float c) {
    const double exact = double(a) * b + c;
    const float x = float(exact);
    return x > exact ? nextafterf(x, -INFINITY) : x;
}
inline float larger_or_nan(float a, float b) { return a > b || a != a ? a : b; }
template <int N> inline void keep_order(float (&)[N][4]) {}

inline unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

struct Four { float v[4]; };

inline Four load_shared(unsigned from) {
    const float4 x = *(const float4*)(emu::shared + from);
    return {{x.x, x.y, x.z, x.w}};
}
inline unsigned load_shared16(unsigned from) { return *(const unsigned short*)(emu::shared + from); }
inline float2 load_shared2(unsigned from) { return *(const float2*)(emu::shared + from); }
inline void store_shared(unsigned to, float a, float b) { *(float2*)(emu::shared + to) = float2{a, b}; }
inline void store_shared(unsigned to, float4 x) { *(float4*)(emu::shared + to) = x; }
inline void store_shared(unsigned to, float a, float b, float c, float d) { store_shared(to, float4{a, b, c, d}); }
inline void store_shared(unsigned to, float a) { *(float*)(emu::shared + to) = a; }
inline void store_shared(unsigned to, uint4 x) { *(uint4*)(emu::shared + to) = x; }
inline void store_shared(unsigned to, uint2 x) { *(uint2*)(emu::shared + to) = x; }
inline void store_shared(unsigned to, unsigned x) { *(unsigned*)(emu::shared + to) = x; }
inline void store_shared(unsigned to, unsigned short x) { *(unsigned short*)(emu::shared + to) = x; }

inline void pair_sync(int id, EMU_HERE) { emu::barrier(EMU_SITE("bar.sync"), id, 64); }

inline void store_once(float* to, float4 x) { *(float4*)to = x; }

inline void read_again(unsigned& block, unsigned& thread) { block = blockIdx.x, thread = threadIdx.x; }

#if ARCH >= 800
inline void copy16_async(unsigned to, const float* from, bool inside) {
    emu::copy_async(to, from, 16, inside ? 16 : 0);
}
inline void copy16_part(unsigned to, const void* from, int bytes) { emu::copy_async(to, from, 16, max(0, min(bytes, 16))); }
inline void copy16_once(unsigned to, const float* from, bool inside) { copy16_async(to, from, inside); }
inline void cp_async_wait_all() { emu::copy_async_wait(emu::WAIT_ALL); }
inline void cp_async_commit() { emu::copy_async_commit(); }
template <int LATER> inline void cp_async_wait() { emu::copy_async_wait(LATER); }

struct WarpMax {
    unsigned x;
    static void all(void* const* lane, int n) {
        unsigned top = 0;
        for (int i = 0; i < n; i++) top = lane[i] ? max(top, ((WarpMax*)lane[i])->x) : top;
        for (int i = 0; i < n; i++)
            if (lane[i]) ((WarpMax*)lane[i])->x = top;
    }
};
inline unsigned warp_max(unsigned x, EMU_HERE) {
    WarpMax mine{x};
    emu::meet(EMU_SITE("redux.sync.max"), emu::WARP, 0xffffffffu, &mine, WarpMax::all);
    return mine.x;
}
#endif
inline void griddep_launch() {}
inline void griddep_wait() {}
