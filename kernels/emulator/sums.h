// How tensor cores add products: exactly, or as they really do.
//
// Exactly: the sum of all products and the accumulator, rounded once to float32. Really (docs/accuracy.md, "Sum of a
// score"): the products of a block and the accumulator are aligned with the largest of them, cut off so many bits
// beyond float32's 24, and the block's sum is cut off to 24 bits. Products are not normalized: the exponents of the
// factors are added, where a subnormal number has that of the smallest normal one.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace emu {

struct Adder {
    int block = 0, extra = 0;  // products that are added at once, 0: exactly; bits that are kept beyond 24
};
// The adder of a compute capability (90 for 9.0).
constexpr Adder adder_of(int cc) { return cc == 90 || cc == 100 ? Adder{16, 2} : Adder{8, 1}; }

extern Adder adder;  // of this launch

inline double power_at_or_below(double x) {  // |x| as a power of two, 0 for 0; x is no subnormal double
    uint64_t u;
    memcpy(&u, &x, 8);
    u &= 0x7ff0000000000000ull;
    memcpy(&x, &u, 8);
    return x;
}

// c + the sum of N products: one block. `normal` is the smallest normal number of the factors' format.
template <int N> inline float add_block(float c, const float* a, const float* b, int extra, double normal) {
    double addend[N + 1], largest = power_at_or_below(c);
    addend[N] = c;
    for (int k = 0; k < N; k++) {
        addend[k] = (double)a[k] * b[k];  // exact: 11 bits each, or 8
        if (addend[k] == 0) continue;
        const double power = std::max(power_at_or_below(a[k]), normal) * std::max(power_at_or_below(b[k]), normal);
        largest = std::max(largest, power);
    }
    double sum = 0;
    for (int k = 0; k <= N; k++) sum += addend[k];
    if (!(std::fabs(sum) < INFINITY)) return (float)sum;
    if (largest == 0) return 0;
    const double grain = largest * std::ldexp(1.0, -23 - extra), per = 1 / grain;  // powers of two
    int64_t total = 0;  // at most 17 addends below 2^27
    for (int k = 0; k <= N; k++) total += (int64_t)(addend[k] * per);
    if (total == 0) return 0;
    const int excess = 40 - __builtin_clzll((uint64_t)std::llabs(total));  // bits beyond 24
    if (excess > 0) total = total / (1 << excess) * (1 << excess);
    return (float)(total * grain);
}
template <int N> inline float add_blocks(float c, const float* a, const float* b, int k, int extra, double normal) {
    for (int first = 0; first < k; first += N) c = add_block<N>(c, a + first, b + first, extra, normal);
    return c;
}
// c (rows, columns; stride of rows `columns`) += a b' for a (rows, k) and b (columns, k); columns and k are multiples of
// 8, k at most MOST_DEPTH. Eight columns at a time, which do not wait for each other.
constexpr int MOST_DEPTH = 32;
typedef double Eight __attribute__((vector_size(64)));
inline void multiply_exactly(float* c, const float* a, const float* b, int rows, int columns, int k) {
    for (int column = 0; column < columns; column += 8) {
        Eight y[MOST_DEPTH];
        for (int n = 0; n < k; n++)
            for (int j = 0; j < 8; j++) y[n][j] = b[(column + j) * k + n];
        for (int row = 0; row < rows; row++) {
            float* to = c + row * columns + column;
            Eight sum;
            for (int j = 0; j < 8; j++) sum[j] = to[j];
            for (int n = 0; n < k; n++) sum += (double)a[row * k + n] * y[n];
            for (int j = 0; j < 8; j++) to[j] = (float)sum[j];
        }
    }
}
inline void multiply(float* c, const float* a, const float* b, int rows, int columns, int k, Adder how, double normal) {
    if (how.block == 0) return multiply_exactly(c, a, b, rows, columns, k);
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++) {
            float& sum = c[row * columns + column];
            const float *x = a + row * k, *y = b + column * k;
            sum = how.block == 16 && k % 16 == 0 ? add_blocks<16>(sum, x, y, k, how.extra, normal)
                                                 : add_blocks<8>(sum, x, y, k, how.extra, normal);
        }
}
// The same in integers, which wrap around: exact. Elements are bytes, held as floats.
inline void multiply(int32_t* c, const float* a, const float* b, int rows, int columns, int k) {
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++) {
            uint32_t sum = (uint32_t)c[row * columns + column];
            for (int n = 0; n < k; n++) sum += (uint32_t)((int32_t)a[row * k + n] * (int32_t)b[column * k + n]);
            c[row * columns + column] = (int32_t)sum;
        }
}

}  // namespace emu
