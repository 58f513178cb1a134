// The number formats of tensor cores' operands, as integers' bits: half (fp16), bfloat16, tf32, signed and unsigned
// bytes.
//
// Done by hand: kernels run with subnormal numbers flushed to zero (-ftz), which tensor cores do not do.
#pragma once
#include <stdint.h>
#include <string.h>

namespace emu {

enum class Format { HALF, BFLOAT, TF32, SIGNED, UNSIGNED };
constexpr int bits_of(Format f) { return f == Format::TF32 ? 32 : f == Format::HALF || f == Format::BFLOAT ? 16 : 8; }
constexpr const char* name_of(Format f) {
    return f == Format::TF32 ? "tf32" : f == Format::HALF ? "fp16" : f == Format::BFLOAT ? "bf16" : "int8";
}
constexpr double smallest_normal(Format f) { return f == Format::HALF ? 0x1p-14 : 0x1p-126; }

inline uint32_t bits(float x) {
    uint32_t r;
    memcpy(&r, &x, 4);
    return r;
}
inline float from_bits(uint32_t x) {
    float r;
    memcpy(&r, &x, 4);
    return r;
}
inline float half_to_float(uint32_t h) {
    const uint32_t exponent = h >> 10 & 31, mantissa = h & 1023, sign = (h & 0x8000) << 16;
    if (exponent == 0) return (sign ? -0x1p-24f : 0x1p-24f) * (float)mantissa;
    return from_bits(sign | mantissa << 13 | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23));
}
// Rounded to nearest, ties to even; what is too large becomes infinite.
inline uint32_t float_to_half(float x) {
    const uint32_t all = bits(x), sign = all >> 16 & 0x8000, size = all & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7fff;
    if (size >= 0x477ff000u) return sign | 0x7c00;  // 65520 and more
    if (size < 0x33000000u) return sign;            // less than half of the smallest, 2^-24
    const uint32_t exponent = size >> 23, shift = exponent < 113 ? 126 - exponent : 13;  // subnormal below 2^-14
    const uint32_t mantissa = (size & 0x7fffffu) | 0x800000u, rest = mantissa & ((1u << shift) - 1);
    const uint32_t half = 1u << (shift - 1);
    uint32_t r = mantissa >> shift;
    if (exponent >= 113) r += (exponent - 113) << 10;  // the mantissa's leading one adds the last 1
    return sign | (r + (rest > half || (rest == half && (r & 1))));
}
inline uint32_t float_to_bfloat(float x) {
    const uint32_t all = bits(x);
    if ((all & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (all + 0x7fff + (all >> 16 & 1)) >> 16;
}
// Element `part` of a register, from the low bits on.
template <Format F> inline float element(uint32_t reg, int part) {
    if (F == Format::HALF) return half_to_float(reg >> 16 * part & 0xffff);
    if (F == Format::BFLOAT) return from_bits(reg >> 16 * part << 16);
    if (F == Format::TF32) return from_bits(reg & 0xffffe000u);
    return F == Format::SIGNED ? (float)(int8_t)(reg >> 8 * part) : (float)(uint8_t)(reg >> 8 * part);
}

}  // namespace emu
