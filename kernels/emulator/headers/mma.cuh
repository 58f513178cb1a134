// Stands in for kernels/mma.cuh where kernels run on the CPU: the same functions, in C++.
#include "tensor.h"
#include "sixteen.cuh"

inline void mma(float* c, const unsigned* a, const unsigned* b, EMU_HERE) {
    const auto format = BFLOAT16 ? emu::Format::BFLOAT : emu::Format::HALF;
    if (ARCH >= 800) return emu::mma(EMU_SITE("mma"), format, 16, c, a, b);
    for (int half = 0; half < 2; half++) emu::mma(EMU_SITE("mma"), format, 8, c, a + 2 * half, b + half);
}
inline void mma(int* c, const unsigned* a, const unsigned* b, EMU_HERE) {
    emu::mma(EMU_SITE("mma"), emu::Format::SIGNED, 32, c, a, b);
}
inline void mma(int* c, const unsigned* a, const unsigned* b, int from, EMU_HERE) {
    for (int e = 0; e < 4; e++) c[e] = from;
    emu::mma(EMU_SITE("mma"), emu::Format::SIGNED, 32, c, a, b);
}
inline void load_matrices(unsigned* r, unsigned at, EMU_HERE) {
    emu::load_matrix<4>(EMU_SITE("ldmatrix"), r, at, false);
}
inline void load_transposed(unsigned* r, unsigned at, EMU_HERE) {
    emu::load_matrix<4>(EMU_SITE("ldmatrix.trans"), r, at, true);
}

inline unsigned halves(float x, float y) { return emu::float_to_half(x) | emu::float_to_half(y) << 16; }
inline float2 floats(unsigned halves) {
    return {emu::half_to_float(halves & 0xffff), emu::half_to_float(halves >> 16)};
}
