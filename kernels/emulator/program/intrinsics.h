// What programs use of CUDA's device library, beyond language.h.
#pragma once

#define EMU_MINMAX(T)                                                                                        \
    inline T min(T a, T b) { return b < a ? b : a; }                                                         \
    inline T max(T a, T b) { return a < b ? b : a; }
EMU_MINMAX(int) EMU_MINMAX(unsigned) EMU_MINMAX(long) EMU_MINMAX(unsigned long) EMU_MINMAX(long long)
EMU_MINMAX(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
#define EMU_MIXED(T, A, B)                                                                                   \
    inline T min(A a, B b) { return min((T)a, (T)b); }                                                       \
    inline T min(B a, A b) { return min((T)a, (T)b); }                                                       \
    inline T max(A a, B b) { return max((T)a, (T)b); }                                                       \
    inline T max(B a, A b) { return max((T)a, (T)b); }
EMU_MIXED(unsigned, int, unsigned) EMU_MIXED(double, float, double) EMU_MIXED(unsigned long, long, unsigned long)
EMU_MIXED(unsigned long long, long long, unsigned long long)

// ---- Arithmetic: the approximations of a GPU's own are rounded here as the function itself

inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline void __sincosf(float x, float* s, float* c) { *s = sinf(x), *c = cosf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __exp10f(float x) { return powf(10, x); }
inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1 : 0; }
inline float fdividef(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1 / sqrtf(x); }
inline float rcbrtf(float x) { return 1 / cbrtf(x); }
inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }
inline float sinpif(float x) { return sinf(x * 3.14159265f); }
inline float cospif(float x) { return cosf(x * 3.14159265f); }
inline double sinpi(double x) { return sin(x * 3.14159265358979323846); }
inline double cospi(double x) { return cos(x * 3.14159265358979323846); }
inline float norm3df(float x, float y, float z) { return sqrtf(x * x + y * y + z * z); }
inline float rnorm3df(float x, float y, float z) { return 1 / norm3df(x, y, z); }
// A product that is not to be fused with a sum.
inline float emu_rounded(float x) {
    asm("" : "+x"(x));
    return x;
}
inline double emu_rounded(double x) {
    asm("" : "+x"(x));
    return x;
}
inline float __fadd_rn(float x, float y) { return emu_rounded(emu_rounded(x) + emu_rounded(y)); }
inline float __fsub_rn(float x, float y) { return emu_rounded(emu_rounded(x) - emu_rounded(y)); }
inline float __fmul_rn(float x, float y) { return emu_rounded(x * y); }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline double __dadd_rn(double x, double y) { return emu_rounded(emu_rounded(x) + emu_rounded(y)); }
inline double __dsub_rn(double x, double y) { return emu_rounded(emu_rounded(x) - emu_rounded(y)); }
inline double __dmul_rn(double x, double y) { return emu_rounded(x * y); }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

// ---- Atomic functions with an order and a scope: the compiler's own since CUDA 12.8, and those of cuda::atomic

#define __NV_ATOMIC_RELAXED 0
#define __NV_ATOMIC_CONSUME 1
#define __NV_ATOMIC_ACQUIRE 2
#define __NV_ATOMIC_RELEASE 3
#define __NV_ATOMIC_ACQ_REL 4
#define __NV_ATOMIC_SEQ_CST 5
#define __NV_THREAD_SCOPE_THREAD 0
#define __NV_THREAD_SCOPE_BLOCK 1
#define __NV_THREAD_SCOPE_CLUSTER 2
#define __NV_THREAD_SCOPE_DEVICE 3
#define __NV_THREAD_SCOPE_SYSTEM 4

// A word is changed: behind what comes before, if the order releases, and before what comes behind, if it acquires.
template <class T, class F>
inline T emu_ordered(T* word, int order, emu::Reach reach, F next, unsigned how = emu::ANY_ATOMIC) {
    if (order >= __NV_ATOMIC_RELEASE) emu::fence(reach);
    const T old = emu::atomic(word, next, how | (reach == emu::OF_BLOCK ? emu::BLOCK_SCOPE : emu::ANY_ATOMIC));
    if (order != __NV_ATOMIC_RELAXED && order != __NV_ATOMIC_RELEASE) emu::acquire_now(reach);
    return old;
}
constexpr emu::Reach emu_reach_of(int scope) { return scope <= __NV_THREAD_SCOPE_BLOCK ? emu::OF_BLOCK : emu::OF_DEVICE; }
template <class T> inline T __nv_atomic_load_n(const T* p, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
    return emu_ordered(const_cast<T*>(p), order, emu_reach_of(scope), [](T old) { return old; });
}
template <class T> inline void __nv_atomic_load(const T* p, T* to, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
    *to = __nv_atomic_load_n(p, order, scope);
}
template <class T>
inline T __nv_atomic_exchange_n(T* p, emu::Same<T> x, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
    return emu_ordered(p, order, emu_reach_of(scope), [x](T) { return x; }, emu::EXCHANGES);
}
template <class T> inline void __nv_atomic_exchange(T* p, T* x, T* to, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
    *to = __nv_atomic_exchange_n(p, *x, order, scope);
}
template <class T> inline void __nv_atomic_store_n(T* p, emu::Same<T> x, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
    __nv_atomic_exchange_n(p, x, order, scope);
}
template <class T> inline void __nv_atomic_store(T* p, T* x, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
    __nv_atomic_exchange_n(p, *x, order, scope);
}
template <class T>
inline bool __nv_atomic_compare_exchange_n(T* p, T* expected, emu::Same<T> x, bool, int order, int,
                                           int scope = __NV_THREAD_SCOPE_SYSTEM) {
    const T wanted = *expected;
    const auto next = [=](T old) { return old == wanted ? x : old; };
    *expected = emu_ordered(p, order, emu_reach_of(scope), next, emu::COMPARES);
    return *expected == wanted;
}
template <class T>
inline bool __nv_atomic_compare_exchange(T* p, T* expected, T* x, bool weak, int order, int failed,
                                         int scope = __NV_THREAD_SCOPE_SYSTEM) {
    return __nv_atomic_compare_exchange_n(p, expected, *x, weak, order, failed, scope);
}
#define EMU_FETCH(name, next)                                                                                \
    template <class T>                                                                                       \
    inline T __nv_atomic_fetch_##name(T* p, emu::Same<T> x, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) { \
        return emu_ordered(p, order, emu_reach_of(scope), [x](T old) -> T { return next; });                 \
    }
EMU_FETCH(add, old + x) EMU_FETCH(sub, old - x) EMU_FETCH(and, old & x) EMU_FETCH(or, old | x)
EMU_FETCH(xor, old ^ x) EMU_FETCH(max, old < x ? x : old) EMU_FETCH(min, x < old ? x : old)
#undef EMU_FETCH
inline void __nv_atomic_thread_fence(int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
    if (order != __NV_ATOMIC_RELAXED) emu::fence(emu_reach_of(scope));
}

// ---- Integers and bits

inline int __mul24(int x, int y) { return (x << 8 >> 8) * (y << 8 >> 8); }
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffff) * (y & 0xffffff); }
inline int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((unsigned long long)x * y >> 32); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
inline long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
inline unsigned __sad(int x, int y, unsigned z) { return z + (x < y ? (unsigned)y - x : (unsigned)x - y); }
inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return z + (x < y ? y - x : x - y); }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
    return n & 31 ? hi << (n & 31) | lo >> (32 - (n & 31)) : hi;
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) {
    return n & 31 ? lo >> (n & 31) | hi << (32 - (n & 31)) : lo;
}
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (int)(int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 4; i++) c += (unsigned)(uint8_t)(a >> 8 * i) * (uint8_t)(b >> 8 * i);
    return c;
}

// ---- Conversions

// What does not fit becomes the nearest number that does, NaN becomes 0.
template <class To> inline To emu_fitting(double x) {
    constexpr double bits = sizeof(To) * 8 - ((To)-1 < (To)0 ? 1 : 0);
    const double top = __builtin_exp2(bits), low = (To)-1 < (To)0 ? -top : 0;
    return x != x ? 0 : x < low ? (To)low : x >= top ? (To)~((To)-1 < (To)0 ? (To)1 << (sizeof(To) * 8 - 1) : (To)0) : (To)x;
}
#define EMU_CONVERSIONS(from, From, to, To)                                                                  \
    inline To __##from##2##to##_rn(From x) { return emu_fitting<To>(nearbyint((double)x)); }                 \
    inline To __##from##2##to##_rz(From x) { return emu_fitting<To>(trunc((double)x)); }                     \
    inline To __##from##2##to##_rd(From x) { return emu_fitting<To>(floor((double)x)); }                     \
    inline To __##from##2##to##_ru(From x) { return emu_fitting<To>(ceil((double)x)); }
EMU_CONVERSIONS(float, float, int, int) EMU_CONVERSIONS(float, float, uint, unsigned)
EMU_CONVERSIONS(float, float, ll, long long) EMU_CONVERSIONS(float, float, ull, unsigned long long)
EMU_CONVERSIONS(double, double, int, int) EMU_CONVERSIONS(double, double, uint, unsigned)
EMU_CONVERSIONS(double, double, ll, long long) EMU_CONVERSIONS(double, double, ull, unsigned long long)
inline float __int2float_rn(int x) { return (float)x; }
inline float __int2float_rz(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline float __uint2float_rz(unsigned x) { return (float)x; }
inline float __ll2float_rn(long long x) { return (float)x; }
inline float __ull2float_rn(unsigned long long x) { return (float)x; }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return (double)x; }
inline float __double2float_rn(double x) { return (float)x; }
inline long long __double_as_longlong(double x) { return emu_same_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emu_same_bits<double>(x); }
inline int __double2hiint(double x) { return (int)(emu_same_bits<unsigned long long>(x) >> 32); }
inline int __double2loint(double x) { return (int)emu_same_bits<unsigned long long>(x); }
inline double __hiloint2double(int hi, int lo) {
    return emu_same_bits<double>((unsigned long long)(unsigned)hi << 32 | (unsigned)lo);
}

// ---- Memory

template <class T> inline T __ldcg(const T* p) { return *p; }
template <class T> inline T __ldca(const T* p) { return *p; }
template <class T> inline T __ldcs(const T* p) { return *p; }
template <class T> inline T __ldlu(const T* p) { return *p; }
template <class T> inline T __ldcv(const T* p) { return *p; }
template <class T> inline void __stcg(T* p, T x) { *p = x; }
template <class T> inline void __stcs(T* p, T x) { *p = x; }
template <class T> inline void __stwb(T* p, T x) { *p = x; }
template <class T> inline void __stwt(T* p, T x) { *p = x; }
inline void __threadfence_system() { emu::fence(); }
EMU_ATOMIC(atomicXor, old ^ x)
EMU_ATOMIC(atomicInc, old >= x ? 0 : old + 1)
EMU_ATOMIC(atomicDec, old == 0 || old > x ? x : old - 1)
inline unsigned __isGlobal(const void* p) { return emu::memory_is(p, emu::GLOBAL); }
inline unsigned __isShared(const void* p) { return emu::memory_is(p, emu::SHARED); }
inline unsigned __isConstant(const void* p) { return emu::memory_is(p, emu::CONSTANT); }
inline unsigned __isLocal(const void* p) { return emu::memory_is(p, emu::LOCAL); }

// ---- Warps

inline EMU_MASK __activemask(EMU_HERE) { return (EMU_MASK)emu::present(EMU_SITE("__activemask")); }
namespace emu {
struct Alike {
    uint64_t value, mask;
    bool all;
    static void find(void* const* lane, int n) {
        for (int i = 0; i < n; i++) {
            if (!lane[i]) continue;
            Alike& mine = *(Alike*)lane[i];
            mine.mask = 0, mine.all = true;
            for (int j = 0; j < n; j++) {
                if (!lane[j]) continue;
                const bool alike = ((Alike*)lane[j])->value == mine.value;
                mine.mask |= (uint64_t)alike << j, mine.all &= alike;
            }
        }
    }
};
template <class T> inline Alike alike(Site site, uint64_t mask, T x) {
    static_assert(sizeof(T) <= 8, "a match compares 4 or 8 bytes");
    Alike mine{0, 0, false};
    memcpy(&mine.value, &x, sizeof x);
    meet(site, WARP, mask, &mine, Alike::find);
    return mine;
}
template <class T, class F> struct Reduction {
    T value;
    const F* f;
    static void all(void* const* lane, int n) {
        const Reduction* first = nullptr;
        T sum{};
        for (int i = 0; i < n; i++) {
            if (!lane[i]) continue;
            const Reduction* one = (const Reduction*)lane[i];
            sum = first ? (*one->f)(sum, one->value) : one->value, first = one;
        }
        for (int i = 0; i < n; i++)
            if (lane[i]) ((Reduction*)lane[i])->value = sum;
    }
};
template <class T, class F> inline T reduced(Site site, uint64_t mask, T x, const F& f) {
    Reduction<T, F> mine{x, &f};
    meet(site, WARP, mask, &mine, Reduction<T, F>::all);
    return mine.value;
}
}  // namespace emu
template <class T> inline EMU_MASK __match_any_sync(EMU_MASK mask, T x, EMU_HERE) {
    return (EMU_MASK)emu::alike(EMU_SITE("__match_any_sync"), mask, x).mask;
}
template <class T> inline EMU_MASK __match_all_sync(EMU_MASK mask, T x, int* all, EMU_HERE) {
    const emu::Alike found = emu::alike(EMU_SITE("__match_all_sync"), mask, x);
    *all = found.all;
    return found.all ? (EMU_MASK)found.mask : 0;
}
#define EMU_REDUCE(name, expression)                                                                         \
    template <class T> inline T __reduce_##name##_sync(EMU_MASK mask, T x, EMU_HERE) {                       \
        return emu::reduced(EMU_SITE("__reduce_" #name "_sync"), mask, x, [](T a, T b) -> T { return expression; }); \
    }
EMU_REDUCE(add, a + b) EMU_REDUCE(min, b < a ? b : a) EMU_REDUCE(max, a < b ? b : a) EMU_REDUCE(and, a & b)
EMU_REDUCE(or, a | b) EMU_REDUCE(xor, a ^ b)
#ifndef __HIP__
// As before Volta: the lanes that are there.
template <class T> inline T __shfl(T x, int from, int width = emu::lanes, EMU_HERE) {
    return emu::shuffle(EMU_SITE("__shfl"), emu::PRESENT, x, emu::segment(width) + (from & (width - 1)));
}
template <class T> inline T __shfl_xor(T x, int bits, int width = emu::lanes, EMU_HERE) {
    return emu::shuffle(EMU_SITE("__shfl_xor"), emu::PRESENT, x, emu::within(emu::lane() ^ bits, width));
}
inline int __any(int predicate, EMU_HERE) { return emu::ballot(EMU_SITE("__any"), emu::PRESENT, predicate).yes != 0; }
inline int __all(int predicate, EMU_HERE) {
    const emu::Ballot votes = emu::ballot(EMU_SITE("__all"), emu::PRESENT, predicate);
    return votes.yes == votes.all;
}
inline unsigned __ballot(int predicate, EMU_HERE) {
    return (unsigned)emu::ballot(EMU_SITE("__ballot"), emu::PRESENT, predicate).yes;
}
#else
#endif
template <class T> inline T __shfl_up(T x, unsigned by, int width = emu::lanes, EMU_HERE) {
    return emu::shuffle(EMU_SITE("__shfl_up"), emu::PRESENT, x, emu::within(emu::lane() - (int)by, width));
}
template <class T> inline T __shfl_down(T x, unsigned by, int width = emu::lanes, EMU_HERE) {
    return emu::shuffle(EMU_SITE("__shfl_down"), emu::PRESENT, x, emu::within(emu::lane() + (int)by, width));
}
inline unsigned __lane_id() { return (unsigned)emu::lane(); }
inline unsigned __laneid() { return (unsigned)emu::lane(); }

// ---- Time

inline void __nanosleep(unsigned) { emu::give_way(); }
inline long long wall_clock64() { return clock64(); }
inline void __trap() { emu::trap(__builtin_return_address(0)); }
inline void __brkpt() { emu::trap(__builtin_return_address(0)); }
inline void __prof_trigger(int) {}
