// Stands in for kernels/wgmma.cuh where kernels run on the CPU: the same functions, in C++.
#include "tensor.h"
#include "ptx.cuh"

inline void wgmma_fence() { emu::wgmma_fence(); }
inline void wgmma_commit() { emu::wgmma_commit(); }
template <int LATER> inline void wgmma_wait() { emu::wgmma_wait(LATER); }
template <int N> inline void fence_registers(float (&)[N][4]) {}
template <int N> inline void fence_registers(int (&)[N][4]) {}

// What all products here have in common: fp16 or bf16, sums in float32; a is in registers, or K-major in shared memory.
inline emu::Wgmma wgmma_of(int blocks, void* const* c, const unsigned* registers, unsigned long long a,
                           unsigned long long b, bool k_major, bool add = true) {
#if BFLOAT16
    constexpr emu::Format ELEMENT = emu::Format::BFLOAT;
#else
    constexpr emu::Format ELEMENT = emu::Format::HALF;
#endif
    return {ELEMENT, false, add, false, false, registers, a, b, true, k_major, blocks, c};
}
template <int N> inline void wgmma(float (&c)[N][4], const unsigned* a, unsigned long long b, EMU_HERE) {
    void* blocks[N];
    for (int n = 0; n < N; n++) blocks[n] = c[n];
    emu::wgmma(EMU_SITE("wgmma"), wgmma_of(N, blocks, a, 0, b, true));
}
template <int N> inline void wgmma(float (&c)[N][4], unsigned long long a, unsigned long long b, EMU_HERE) {
    void* blocks[N];
    for (int n = 0; n < N; n++) blocks[n] = c[n];
    emu::wgmma(EMU_SITE("wgmma"), wgmma_of(N, blocks, nullptr, a, b, true));
}
template <int N> inline void wgmma(float (&c)[N][4], unsigned long long a, unsigned long long b, int add, EMU_HERE) {
    void* blocks[N];
    for (int n = 0; n < N; n++) blocks[n] = c[n];
    emu::wgmma(EMU_SITE("wgmma"), wgmma_of(N, blocks, nullptr, a, b, true, add != 0));
}
template <int N> inline void wgmma(float (&c)[N][4], const unsigned* a, unsigned long long b, int add, EMU_HERE) {
    void* blocks[N];
    for (int n = 0; n < N; n++) blocks[n] = c[n];
    emu::wgmma(EMU_SITE("wgmma"), wgmma_of(N, blocks, a, 0, b, true, add != 0));
}
template <int N> inline void wgmma_rows(float (&c)[N][4], const unsigned* a, unsigned long long b, EMU_HERE) {
    void* blocks[N];
    for (int n = 0; n < N; n++) blocks[n] = c[n];
    emu::wgmma(EMU_SITE("wgmma"), wgmma_of(N, blocks, a, 0, b, false));
}
template <int N>
inline void wgmma_rows(float (&c)[N][4], float (&more)[4], const unsigned* a, unsigned long long b, EMU_HERE) {
    void* blocks[N + 1];
    for (int n = 0; n < N; n++) blocks[n] = c[n];
    blocks[N] = more;
    emu::wgmma(EMU_SITE("wgmma"), wgmma_of(N + 1, blocks, a, 0, b, false));
}
template <int N>
inline void wgmma_rows_of_a(float (&c)[N][4], unsigned long long a, unsigned long long b, int add, EMU_HERE) {
    void* blocks[N];
    for (int n = 0; n < N; n++) blocks[n] = c[n];
    emu::Wgmma what = wgmma_of(N, blocks, nullptr, a, b, true, add != 0);
    what.a_k_major = false;
    emu::wgmma(EMU_SITE("wgmma"), what);
}
template <int N> inline void wgmma(int (&c)[N][4], unsigned long long a, unsigned long long b, EMU_HERE) {
    void* blocks[N];
    for (int n = 0; n < N; n++) blocks[n] = c[n];
    constexpr emu::Format INTEGER = emu::Format::SIGNED;
    emu::wgmma(EMU_SITE("wgmma"), {INTEGER, true, true, false, false, nullptr, a, b, true, true, N, blocks});
}
