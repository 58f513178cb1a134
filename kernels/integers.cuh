#pragma once
// INT8: the corrections of a score, the products with a lo, from integers of 8 bits instead of halves: half the time of tensor
// cores. docs/accuracy.md proves how wrong they can be.
//
// Q and K are taken times QK_FACTOR: elements up to 3 are then less than 1, and lo at most 2^-12. The integer 127 stands for
// either, so Q lo K and Q K lo have one unit and one sum, in which a row of Q has lo first, one of K last.

#include "params.cuh"
#include "tiles.cuh"

// Sums begin at the integer whose bits are the float INTEGERS: its bits and n more are INTEGERS + n.
constexpr float QK_FACTOR = 1364 / 4096.0f, INTEGERS = 12582912, ONE8 = 127, LO_ONE8 = 127 * 4096;

// What makes scores, in units of log2, of the sums of products.
__device__ __forceinline__ float unit_of(const Params& p) {
    return INT8 ? p.scale * (LOG2E / (QK_FACTOR * QK_FACTOR)) : 1;
}

#if INT8

// A number times `one`, to the nearest integer up to 127, in the lowest byte; and of two, the second above the first.
__device__ __forceinline__ unsigned integer(float x, float one) {
    return __float_as_uint(fminf(fmaxf(fmaf(x, one, INTEGERS), INTEGERS - ONE8), INTEGERS + ONE8));
}
__device__ __forceinline__ unsigned integers(float x, float y, float one) {
    return __byte_perm(integer(x, one), integer(y, one), 0x0040);
}
// Two columns: as halves, as integers, and as integers what the halves round away.
struct HiIntegers { unsigned hi, whole, lo; };
__device__ __forceinline__ HiIntegers split_integers(float x, float y) {
    x *= QK_FACTOR, y *= QK_FACTOR;
    const unsigned hi = halves(x, y);
    const float2 rounded = floats(hi);
    return {hi, integers(x, y, ONE8), integers(x - rounded.x, y - rounded.y, LO_ONE8)};
}
// A sum of integers as a term of the sums of hi hi.
__device__ __forceinline__ float of_integers(int sum) {
    constexpr float FINE = 1 / (ONE8 * LO_ONE8);
    return fmaf(__int_as_float(sum), FINE, -INTEGERS * FINE);
}
// The offset of column c in the first or the second half of a row of integers.
__device__ __forceinline__ unsigned swizzle_integer(unsigned row, unsigned c, bool second) {
    return swizzle(row, second * (CHUNKS / 2) + c / 16) + c % 16;
}
#endif  // INT8
