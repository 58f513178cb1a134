// Stands in for kernels/sixteen.cuh where kernels are compiled by HIP for AMD's GPUs: the same functions, in C++.

#include "ptx.cuh"

#ifndef BFLOAT16
#define BFLOAT16 0
#endif

#if BFLOAT16
// To nearest, ties to even; NaN stays one.
__device__ __forceinline__ unsigned rounded_bits(float x) {
    const unsigned bits = __float_as_uint(x);
    return x == x ? bits + 0x7fff + (bits >> 16 & 1) : 0x7fff0000;
}
__device__ __forceinline__ unsigned pack(float x, float y) { return rounded_bits(x) >> 16 | (rounded_bits(y) & 0xffff0000); }
__device__ __forceinline__ float2 unpack(unsigned pair) {
    return float2{__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000)};
}
#else
union Pair {
    unsigned word;
    _Float16 number[2];
};
__device__ __forceinline__ unsigned pack(float x, float y) {
    Pair r;
    r.number[0] = (_Float16)x, r.number[1] = (_Float16)y;
    return r.word;
}
__device__ __forceinline__ float2 unpack(unsigned pair) {
    Pair r;
    r.word = pair;
    return float2{(float)r.number[0], (float)r.number[1]};
}
#endif
__device__ __forceinline__ void raise_bits(int& top, float x, float y) {
    top = max(top, max(__float_as_int(x), __float_as_int(y)));
}
