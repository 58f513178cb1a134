#pragma once
// Numbers of 16 bits, in pairs as tensor cores take them: fp16, or bf16 where BFLOAT16.

#include "ptx.cuh"

#ifndef BFLOAT16
#define BFLOAT16 0
#endif
#if BFLOAT16
#define ELEMENT "bf16"
#else
#define ELEMENT "f16"
#endif

// Two numbers rounded to 16 bits, x in the low half.
__device__ __forceinline__ unsigned pack(float x, float y) {
    unsigned r;
#if ARCH < 800 && BFLOAT16
    const unsigned a = __float_as_uint(x), b = __float_as_uint(y);  // to nearest, ties to even; NaN stays one
    const unsigned low = x == x ? a + 0x7fff + (a >> 16 & 1) : 0x7fff0000;
    const unsigned high = y == y ? b + 0x7fff + (b >> 16 & 1) : 0x7fff0000;
    r = low >> 16 | (high & 0xffff0000);
#elif ARCH >= 800
    asm("cvt.rn." ELEMENT "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
#else
    asm("{.reg .f16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h};}" : "=r"(r) : "f"(x), "f"(y));
#endif
    return r;
}
// And back, exactly.
__device__ __forceinline__ float2 unpack(unsigned pair) {
    float2 r;
#if BFLOAT16
    r.x = __uint_as_float(pair << 16), r.y = __uint_as_float(pair & 0xffff0000);
#else
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(r.x), "=f"(r.y) : "r"(pair));
#endif
    return r;
}
// x with the last bits of n added to its exponent. In assembly for the same reason as raise_bits.
__device__ __forceinline__ float raise_exponent(float x, float n) {
    float r;
    asm("{.reg .b32 a, b; mov.b32 a, %1; mov.b32 b, %2; shl.b32 a, a, 23; add.s32 a, a, b; mov.b32 %0, a;}"
        : "=f"(r) : "f"(n), "f"(x));
    return r;
}
// The larger of `top` and the bits of x and y as integers: in the order of numbers, as far as they are positive. In assembly,
// because the compiler serialises wgmma's products whose sums it sees used as integers (C7511).
__device__ __forceinline__ void raise_bits(int& top, float x, float y) {
    asm("{.reg .s32 a, b; mov.b32 a, %1; mov.b32 b, %2; max.s32 a, a, b; max.s32 %0, %0, a;}" : "+r"(top) : "f"(x), "f"(y));
}
