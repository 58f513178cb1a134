// Stands in for kernels/sixteen.cuh where kernels run on the CPU: the same functions, in C++.
#include "numbers.h"
#include "ptx.cuh"

#ifndef BFLOAT16
#define BFLOAT16 0
#endif

inline unsigned pack(float x, float y) {
    if (BFLOAT16) return emu::float_to_bfloat(x) | emu::float_to_bfloat(y) << 16;
    return emu::float_to_half(x) | emu::float_to_half(y) << 16;
}
inline float2 unpack(unsigned pair) {
    if (BFLOAT16) return {emu::from_bits(pair << 16), emu::from_bits(pair & 0xffff0000)};
    return {emu::half_to_float(pair & 0xffff), emu::half_to_float(pair >> 16)};
}
inline float raise_exponent(float x, float n) {
    return __uint_as_float(__float_as_uint(x) + (__float_as_uint(n) << 23));
}
inline void raise_bits(int& top, float x, float y) {
    const auto bits = [](float z) { return z == z ? __float_as_int(z) : 0x7fffffff; };  // NaN as a GPU makes it
    top = max(top, max(bits(x), bits(y)));
}
