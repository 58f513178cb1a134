// Where the lanes of a warp hold the elements of its matrices (PTX ISA, "Matrix Fragments for mma.m16n8k16" and the
// like, "ldmatrix"). One formula serves all formats: E elements share a 32-bit register, and 4 lanes share 4 E columns.
#pragma once
#include "numbers.h"

namespace emu {

struct Place {
    int lane, reg, part;  // part: which element of the register, from the low bits on
};
constexpr int PER_REGISTER(Format f) { return 32 / bits_of(f); }

// Element (row, k) of a, 16 rows.
constexpr Place place_a(int row, int k, int E) {
    return {row % 8 * 4 + k % (4 * E) / E, row / 8 + k / (4 * E) * 2, k % E};
}
// Element (k, column) of b, 8 columns.
constexpr Place place_b(int k, int column, int E) { return {column * 4 + k % (4 * E) / E, k / (4 * E), k % E}; }
// Element (row, column) of c, 16 rows, 8 columns: 32-bit numbers, or halves in pairs.
constexpr Place place_c(int row, int column, bool halves = false) {
    const int lane = row % 8 * 4 + column / 2;
    return halves ? Place{lane, row / 8, column % 2} : Place{lane, row / 8 * 2 + column % 2, 0};
}
// Element (row, column) of an 8x8 matrix of 16-bit elements, one register a lane, as ldmatrix gives it.
constexpr Place place_matrix(int row, int column, bool transposed) {
    return transposed ? Place{column * 4 + row / 2, 0, row % 2} : Place{row * 4 + column / 2, 0, column % 2};
}

// The 16 x K matrix a, and b as 8 columns of K, from registers: lane l's register r is at(l)[r].
template <Format F, int K, class Registers> void gather_a(float* a, Registers at) {
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < K; k++) {
            const Place p = place_a(row, k, PER_REGISTER(F));
            a[row * K + k] = element<F>(at(p.lane)[p.reg], p.part);
        }
}
template <Format F, int K, class Registers> void gather_b(float* b, Registers at) {
    for (int column = 0; column < 8; column++)
        for (int k = 0; k < K; k++) {
            const Place p = place_b(k, column, PER_REGISTER(F));
            b[column * K + k] = element<F>(at(p.lane)[p.reg], p.part);
        }
}

}  // namespace emu
