#pragma once
// 2^x in float32 arithmetic, for a part of the exponentials: the special function units, which have the others (exp2_fast), take
// eight cycles for those of a warp, an FMA takes one.
//
// Range reduction after Cody and Waite (1980): x is an integer and a fraction f. Added to a large float, x leaves its integer in the
// last bits; 2^f is a polynomial, to whose exponent the integer is added. FlashAttention-4 (2026) has it of degree 3, rounded down.
// benchmarks/measure/exponentials.py finds the coefficients, and compares each x with float64.

#include "sixteen.cuh"

#ifndef __HIP__  // no kernel takes them there
constexpr float INTEGER = 12582912;  // 1.5 times 2^23, plus a number: its integer in the last bits

// To 2^-18 of itself, and never less than about 2^-126; nine instructions. (f from -1/2 to 1/2.)
__device__ __forceinline__ float exp2_polynomial(float x) {
    x = fmaxf(x, -126.0f);
    const float n = x + INTEGER, f = x - (n - INTEGER);
    const float y = fmaf(f, fmaf(f, fmaf(f, fmaf(f, 0.0095701f, 0.05591786f), 0.24024745f), 0.69312181f), 0.99999926f);
    return raise_exponent(y, n);
}

// 2^(scale s - lost) for what is rounded to 16 bits: to 2^-13 of itself; eight instructions in place of an FMA and exp2_fast.
//
// The FMA has (scale s - lost + 127) / 256, cut off where that is below 0: 2^-127 and less become 0, what is between them and 2^-126
// some number below 2^-126. A result of 2^128 or more is wrong, and that of NaN 0. (f from 0 to 1; 2^0 is exactly 1.)
struct Powers {
    static constexpr int LEAST = -127, RANGE = 256;
    float scale, first;
    __device__ __forceinline__ Powers(float scale, float lost)
        : scale(scale * (1.0f / RANGE)), first(fmaf(lost, -1.0f / RANGE, float(-LEAST) / RANGE)) {}
    __device__ __forceinline__ float of(float s) const {
        const float x = fma_saturated(s, scale, first), n = fma_down(x, RANGE, INTEGER + LEAST);
        const float f = fmaf(x, RANGE, (INTEGER + LEAST) - n);
        return raise_exponent(fmaf(f, fmaf(f, fmaf(f, 0.07706705f, 0.22764499f), 0.69511679f), 1), n);
    }
};

// Of 16 exponentials that follow each other, in the order of a thread's scores, `share` are by polynomial: whether number n is.
__device__ constexpr bool by_polynomial(int n, int share) { return (n + 1) * share / 16 > n * share / 16; }
#endif
