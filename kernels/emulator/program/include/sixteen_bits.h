// Numbers of 16 bits, half and bfloat16, and pairs of them: stored so, computed in float and rounded at each operation.
#pragma once
#include "../../numbers.h"

namespace emu {
enum Sixteen { HALF16, BFLOAT16_ };
template <Sixteen K> inline float widened(uint16_t bits) {
    return K == HALF16 ? half_to_float(bits) : from_bits((uint32_t)bits << 16);
}
template <Sixteen K> inline uint16_t narrowed(float x) {
    return (uint16_t)(K == HALF16 ? float_to_half(x) : float_to_bfloat(x));
}
// Towards zero.
template <Sixteen K> inline uint16_t cut_off(float x) {
    const uint16_t near = narrowed<K>(x);
    const float back = widened<K>(near);
    return fabsf(back) > fabsf(x) && x == x ? (uint16_t)(near - 1) : near;
}
template <Sixteen K> struct Number {
    uint16_t bits;
    Number() = default;
    Number(float x) : bits(narrowed<K>(x)) {}
    Number(double x) : bits(narrowed<K>((float)x)) {}
    Number(int x) : bits(narrowed<K>((float)x)) {}
    Number(unsigned x) : bits(narrowed<K>((float)x)) {}
    Number(long x) : bits(narrowed<K>((float)x)) {}
    Number(unsigned long x) : bits(narrowed<K>((float)x)) {}
    Number(long long x) : bits(narrowed<K>((float)x)) {}
    operator float() const { return widened<K>(bits); }
    Number& operator+=(Number y) { return *this = *this + y; }
    Number& operator-=(Number y) { return *this = *this - y; }
    Number& operator*=(Number y) { return *this = *this * y; }
    Number& operator/=(Number y) { return *this = *this / y; }
    Number& operator++() { return *this += Number(1.0f); }
    Number operator-() const { return made(bits ^ 0x8000); }
    Number operator+() const { return *this; }
    static Number made(unsigned bits) {
        Number x;
        x.bits = (uint16_t)bits;
        return x;
    }
    friend Number operator+(Number x, Number y) { return Number((float)x + (float)y); }
    friend Number operator-(Number x, Number y) { return Number((float)x - (float)y); }
    friend Number operator*(Number x, Number y) { return Number((float)x * (float)y); }
    friend Number operator/(Number x, Number y) { return Number((float)x / (float)y); }
    friend bool operator==(Number x, Number y) { return (float)x == (float)y; }
    friend bool operator!=(Number x, Number y) { return (float)x != (float)y; }
    friend bool operator<(Number x, Number y) { return (float)x < (float)y; }
    friend bool operator>(Number x, Number y) { return (float)x > (float)y; }
    friend bool operator<=(Number x, Number y) { return (float)x <= (float)y; }
    friend bool operator>=(Number x, Number y) { return (float)x >= (float)y; }
};
template <Sixteen K> struct __attribute__((aligned(4))) Pair {
    Number<K> x, y;
    Pair() = default;
    Pair(Number<K> x, Number<K> y) : x(x), y(y) {}
    friend Pair operator+(Pair a, Pair b) { return {a.x + b.x, a.y + b.y}; }
    friend Pair operator-(Pair a, Pair b) { return {a.x - b.x, a.y - b.y}; }
    friend Pair operator*(Pair a, Pair b) { return {a.x * b.x, a.y * b.y}; }
    friend Pair operator/(Pair a, Pair b) { return {a.x / b.x, a.y / b.y}; }
    Pair& operator+=(Pair b) { return *this = *this + b; }
    Pair& operator-=(Pair b) { return *this = *this - b; }
    Pair& operator*=(Pair b) { return *this = *this * b; }
    Pair operator-() const { return {-x, -y}; }
    friend bool operator==(Pair a, Pair b) { return a.x == b.x && a.y == b.y; }
};
}  // namespace emu

#define EMU_16 template <emu::Sixteen K> inline
#define EMU_N emu::Number<K>
#define EMU_P emu::Pair<K>
#define EMU_16_BINARY(name, expression)                                                                      \
    EMU_16 EMU_N __h##name(EMU_N a, EMU_N b) { return expression; }                                          \
    EMU_16 EMU_N __h##name##_rn(EMU_N a, EMU_N b) { return expression; }                                     \
    EMU_16 EMU_P __h##name##2(EMU_P a, EMU_P b) { return {__h##name(a.x, b.x), __h##name(a.y, b.y)}; }       \
    EMU_16 EMU_P __h##name##2_rn(EMU_P a, EMU_P b) { return {__h##name(a.x, b.x), __h##name(a.y, b.y)}; }
EMU_16_BINARY(add, a + b) EMU_16_BINARY(sub, a - b) EMU_16_BINARY(mul, a * b)
EMU_16_BINARY(add_sat, EMU_N(__saturatef((float)(a + b)))) EMU_16_BINARY(mul_sat, EMU_N(__saturatef((float)(a * b))))
EMU_16_BINARY(max, (float)a != (float)a ? b : (float)b != (float)b ? a : a < b ? b : a)
EMU_16_BINARY(min, (float)a != (float)a ? b : (float)b != (float)b ? a : b < a ? b : a)
EMU_16 EMU_N __hdiv(EMU_N a, EMU_N b) { return a / b; }
EMU_16 EMU_P __h2div(EMU_P a, EMU_P b) { return a / b; }
EMU_16 EMU_N __hfma(EMU_N a, EMU_N b, EMU_N c) { return EMU_N((float)((double)(float)a * (float)b + (float)c)); }
EMU_16 EMU_P __hfma2(EMU_P a, EMU_P b, EMU_P c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
EMU_16 EMU_N __hfma_relu(EMU_N a, EMU_N b, EMU_N c) { return __hmax(__hfma(a, b, c), EMU_N(0.0f)); }
EMU_16 EMU_N __hneg(EMU_N a) { return -a; }
EMU_16 EMU_P __hneg2(EMU_P a) { return -a; }
EMU_16 EMU_N __habs(EMU_N a) { return EMU_N::made(a.bits & 0x7fff); }
EMU_16 EMU_P __habs2(EMU_P a) { return {__habs(a.x), __habs(a.y)}; }
#define EMU_16_COMPARE(name, op)                                                                             \
    EMU_16 bool __h##name(EMU_N a, EMU_N b) { return a op b; }                                               \
    EMU_16 EMU_P __h##name##2(EMU_P a, EMU_P b) { return {EMU_N(a.x op b.x ? 1.0f : 0.0f), EMU_N(a.y op b.y ? 1.0f : 0.0f)}; } \
    EMU_16 bool __hb##name##2(EMU_P a, EMU_P b) { return a.x op b.x && a.y op b.y; }
EMU_16_COMPARE(eq, ==) EMU_16_COMPARE(ne, !=) EMU_16_COMPARE(lt, <) EMU_16_COMPARE(gt, >) EMU_16_COMPARE(le, <=)
EMU_16_COMPARE(ge, >=)
EMU_16 bool __hisnan(EMU_N a) { return (float)a != (float)a; }
EMU_16 int __hisinf(EMU_N a) { return isinf((float)a) ? (float)a < 0 ? -1 : 1 : 0; }
#define EMU_16_FUNCTION(name, expression)                                                                    \
    EMU_16 EMU_N h##name(EMU_N a) {                                                                          \
        const float x = a;                                                                                   \
        return EMU_N((float)(expression));                                                                   \
    }                                                                                                        \
    EMU_16 EMU_P h2##name(EMU_P a) { return {h##name(a.x), h##name(a.y)}; }
EMU_16_FUNCTION(exp, expf(x)) EMU_16_FUNCTION(exp2, exp2f(x)) EMU_16_FUNCTION(exp10, powf(10, x))
EMU_16_FUNCTION(log, logf(x)) EMU_16_FUNCTION(log2, log2f(x)) EMU_16_FUNCTION(log10, log10f(x))
EMU_16_FUNCTION(sqrt, sqrtf(x)) EMU_16_FUNCTION(rsqrt, 1 / sqrtf(x)) EMU_16_FUNCTION(rcp, 1 / x)
EMU_16_FUNCTION(sin, sinf(x)) EMU_16_FUNCTION(cos, cosf(x)) EMU_16_FUNCTION(tanh, tanhf(x))
EMU_16_FUNCTION(floor, floorf(x)) EMU_16_FUNCTION(ceil, ceilf(x)) EMU_16_FUNCTION(trunc, truncf(x))
EMU_16_FUNCTION(rint, nearbyintf(x))
EMU_16 EMU_N atomicAdd(EMU_N* p, EMU_N x) {
    return emu::atomic(p, [=](EMU_N old) { return old + x; });
}
EMU_16 EMU_P atomicAdd(EMU_P* p, EMU_P x) {
    return emu::atomic(p, [=](EMU_P old) { return old + x; });
}
// The parts of a pair, and pairs of parts, by their names in either format.
#define EMU_16_NAMES(K, T, T2, one, two, as)                                                                 \
    typedef emu::Number<emu::K> T;                                                                           \
    typedef emu::Pair<emu::K> T2;                                                                            \
    inline T __float2##one(float x) { return T(x); }                                                         \
    inline T __float2##one##_rn(float x) { return T(x); }                                                    \
    inline T __float2##one##_rz(float x) { return T::made(emu::cut_off<emu::K>(x)); }                        \
    inline T __double2##one(double x) { return T((float)x); }                                                \
    inline float __##one##2float(T x) { return x; }                                                          \
    inline T __int2##one##_rn(int x) { return T((float)x); }                                                 \
    inline T __uint2##one##_rn(unsigned x) { return T((float)x); }                                           \
    inline T __short2##one##_rn(short x) { return T((float)x); }                                             \
    inline T __ushort2##one##_rn(unsigned short x) { return T((float)x); }                                   \
    inline int __##one##2int_rn(T x) { return __float2int_rn((float)x); }                                    \
    inline int __##one##2int_rz(T x) { return __float2int_rz((float)x); }                                    \
    inline unsigned __##one##2uint_rn(T x) { return __float2uint_rn((float)x); }                             \
    inline T2 __float2##one##2_rn(float x) { return {T(x), T(x)}; }                                          \
    inline T2 __floats2##one##2_rn(float x, float y) { return {T(x), T(y)}; }                                \
    inline T2 __float22##one##2_rn(float2 x) { return {T(x.x), T(x.y)}; }                                    \
    inline float2 __##two##2float2(T2 x) { return {(float)x.x, (float)x.y}; }                                \
    inline T2 __##one##2##one##2(T x) { return {x, x}; }                                                     \
    inline T2 __halves2##one##2(T x, T y) { return {x, y}; }                                                 \
    inline T __low2##one(T2 x) { return x.x; }                                                               \
    inline T __high2##one(T2 x) { return x.y; }                                                              \
    inline T2 __low2##one##2(T2 x) { return {x.x, x.x}; }                                                    \
    inline T2 __high2##one##2(T2 x) { return {x.y, x.y}; }                                                   \
    inline T2 __lows2##one##2(T2 x, T2 y) { return {x.x, y.x}; }                                             \
    inline T2 __highs2##one##2(T2 x, T2 y) { return {x.y, y.y}; }                                            \
    inline float __low2float(T2 x) { return x.x; }                                                           \
    inline float __high2float(T2 x) { return x.y; }                                                          \
    inline unsigned short __##as##_as_ushort(T x) { return x.bits; }                                         \
    inline short __##as##_as_short(T x) { return (short)x.bits; }                                            \
    inline T __ushort_as_##as(unsigned short x) { return T::made(x); }                                       \
    inline T __short_as_##as(short x) { return T::made((unsigned short)x); }                                 \
    inline T2 make_##as##2(T x, T y) { return {x, y}; }
