// The tensor-core instructions of a warp and of a warp group, as the headers that stand in for mma.cuh and wgmma.cuh
// call them. tensor.cpp and wgmma.cpp compute.
#pragma once
#include "counts.h"
#include "numbers.h"
#include "runtime.h"

#define EMU_ALWAYS_INLINE inline __attribute__((always_inline))  // its loads are the kernel's, in reports, too

namespace emu {

// ---- A warp's (mma.sync, ldmatrix, stmatrix)

// c += a b for 16 x K times K x 8 elements, all in registers. K is 8 or 16 (16 bits), 32 (8 bits), 8 (tf32).
void mma(Site, Format, int K, float* c, const uint32_t* a, const uint32_t* b);
void mma(Site, Format, int K, int32_t* c, const uint32_t* a, const uint32_t* b);
void mma_halves(Site, int K, uint32_t* c, const uint32_t* a, const uint32_t* b);  // c: two registers of two halves

// The addresses of rows that lanes exchange: lane l learns where row r of matrix m lies. Reports an address that is not
// a multiple of 16, or outside; ~0 then.
struct Rows8 { uint32_t at[4][8]; };
Rows8 exchange_rows(Site, int matrices, uint32_t at);

// A lane's load or store of a part of a matrix. Where requests are counted, a matrix of all lanes is one, and the lanes'
// own are none.
#if defined(EMU_COUNTS)
#define EMU_PART __attribute__((noinline, no_sanitize("thread")))
#else
#define EMU_PART EMU_ALWAYS_INLINE
#endif
template <class T> EMU_PART T load_part(const char* at) { return *(const T*)at; }
template <class T> EMU_PART void store_part(char* at, T x) { *(T*)at = x; }
#undef EMU_PART
EMU_ALWAYS_INLINE void count_rows(const Rows8& rows, int matrices, bool write) {
#if defined(EMU_COUNTS)
    if (lane()) return;
    const char* at[32];
    for (int n = 0; n < 8 * matrices; n++) at[n] = shared + rows.at[n / 8][n % 8];
    count_matrices(at, matrices, write, here());
#endif
}
// One to four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8. The loads and
// stores are each lane's own: watched as all others are.
template <int N> EMU_ALWAYS_INLINE void load_matrix(Site site, uint32_t* r, uint32_t at, bool transposed) {
    const Rows8 rows = exchange_rows(site, N, at);
    count_rows(rows, N, false);
    const int column = lane() % 4 * 2, row = lane() / 4;
    for (int m = 0; m < N; m++) {
        r[m] = ~0u;
        if (rows.at[m][row] == ~0u || rows.at[m][column] == ~0u || rows.at[m][column + 1] == ~0u) continue;
        if (transposed)
            r[m] = load_part<uint16_t>(shared + rows.at[m][column] + row * 2) |
                   (uint32_t)load_part<uint16_t>(shared + rows.at[m][column + 1] + row * 2) << 16;
        else
            r[m] = load_part<uint32_t>(shared + rows.at[m][row] + column * 2);
    }
}
template <int N> EMU_ALWAYS_INLINE void store_matrix(Site site, uint32_t at, const uint32_t* r, bool transposed) {
    const Rows8 rows = exchange_rows(site, N, at);
    count_rows(rows, N, true);
    const int column = lane() % 4 * 2, row = lane() / 4;
    for (int m = 0; m < N; m++) {
        if (rows.at[m][row] == ~0u || rows.at[m][column] == ~0u || rows.at[m][column + 1] == ~0u) continue;
        if (transposed)
            for (int n = 0; n < 2; n++)
                store_part<uint16_t>(shared + rows.at[m][column + n] + row * 2, (uint16_t)(r[m] >> 16 * n));
        else
            store_part<uint32_t>(shared + rows.at[m][row] + column * 2, r[m]);
    }
}

// ---- A warp group's (wgmma): asynchronous

struct Wgmma {
    Format format;
    bool integers;          // c: int32_t, else float
    bool add;               // to c; else c = a b
    bool negate_a, negate_b;
    const uint32_t* a_registers;  // or null: a is in shared memory
    uint64_t a, b;          // descriptors
    bool a_k_major, b_k_major;
    int blocks;             // of 8 columns
    void* const* c;         // of each block four numbers: rows l/4 and l/4+8 of a warp's 16, columns 2(l%4) and +1
};
void wgmma(Site, const Wgmma&);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(int groups_left);

// setmaxnreg: the threads of a warp group give registers back, or wait for more.
void set_registers(Site, unsigned count, bool more);

}  // namespace emu
