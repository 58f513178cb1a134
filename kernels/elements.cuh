#pragma once
// Elements of arrays, four at a time, as float32: float32 itself, fp16 or bf16 (ELEMENT_BITS, BFLOAT16), rounded to nearest.

#include "params.cuh"

#if ELEMENT_BITS == 32
typedef float Element;
__device__ __forceinline__ float4 load_four(const float* from) { return *(const float4*)from; }
__device__ __forceinline__ void store_four(float* to, float4 x) { *(float4*)to = x; }
#else
typedef unsigned short Element;
#if BFLOAT16
__device__ __forceinline__ float widened(unsigned bits) { return __uint_as_float(bits << 16); }
__device__ __forceinline__ unsigned rounded(float x) {  // to nearest even; NaN stays one
    const unsigned bits = __float_as_uint(x);
    return x != x ? 0x7fff : bits + 0x7fff + (bits >> 16 & 1) >> 16;
}
#else
// By arithmetic on bits: a subnormal number would be flushed to zero on its way through float32's smallest.
__device__ __forceinline__ float widened(unsigned bits) {
    const unsigned exponent = bits & 0x7c00, magnitude = (bits & 0x7fff) << 13;
    const unsigned found = exponent == 0x7c00 ? magnitude + 0x70000000
                         : exponent ? magnitude + 0x38000000 : __float_as_uint((bits & 0x3ff) * 0x1p-24f);
    return __uint_as_float(found | (bits & 0x8000) << 16);
}
__device__ __forceinline__ unsigned rounded(float x) {
    const unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000, a = bits & 0x7fffffff;
    if (a > 0x7f800000) return 0x7fff;
    if (a >= 0x477ff000) return sign | 0x7c00;  // from 65520 on: infinity
    if (a < 0x38800000) return sign | (__float_as_uint(__uint_as_float(a) + 0.5f) - 0x3f000000);  // subnormal: in units of 2^-24
    return sign | (a - 0x38000000 + 0xfff + (a >> 13 & 1) >> 13);
}
#endif
__device__ __forceinline__ float4 load_four(const unsigned short* from) {
    const uint2 x = *(const uint2*)from;
    return float4{widened(x.x & 0xffff), widened(x.x >> 16), widened(x.y & 0xffff), widened(x.y >> 16)};
}
__device__ __forceinline__ void store_four(unsigned short* to, float4 x) {
    *(uint2*)to = uint2{rounded(x.x) | rounded(x.y) << 16, rounded(x.z) | rounded(x.w) << 16};
}
#endif
