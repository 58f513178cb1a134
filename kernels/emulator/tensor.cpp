// The tensor-core instructions of a warp.
#include "tensor.h"

#include "counts.h"
#include "fragments.h"
#include "internal.h"
#include "sums.h"

namespace emu {
Adder adder;

static void need_warps_of_32() {
    if (lanes == 32) return;
    report("unsupported", "tensor-core instructions are for warps of 32 lanes");
    stop_kernel();
}

// ---- Products

namespace {
template <class Sum> struct Fragments {
    const uint32_t *a, *b;
    Sum* c;
};
}
template <Format F, int K, class Sum> static void multiply_warp(void* const* lane, int) {
    auto of = [&](int l) -> Fragments<Sum>& { return *(Fragments<Sum>*)lane[l]; };
    float a[16 * K], b[8 * K];
    Sum c[16 * 8];
    gather_a<F, K>(a, [&](int l) { return of(l).a; });
    gather_b<F, K>(b, [&](int l) { return of(l).b; });
    auto each = [&](auto use) {
        for (int row = 0; row < 16; row++)
            for (int column = 0; column < 8; column++) {
                const Place p = place_c(row, column);
                use(c[row * 8 + column], of(p.lane).c[p.reg]);
            }
    };
    each([](Sum& here, Sum& there) { here = there; });
    if constexpr (std::is_same<Sum, float>::value) multiply(c, a, b, 16, 8, K, adder, smallest_normal(F));
    else multiply(c, a, b, 16, 8, K);
    each([](Sum& here, Sum& there) { there = here; });
}
template <class Sum>
static void mma_of(Site site, void (*compute)(void* const*, int), Sum* c, const uint32_t* a, const uint32_t* b) {
    Fragments<Sum> mine{a, b, c};
    need_warps_of_32();
    meet(site, WARP, 0xffffffffu, &mine, compute);
}
#define EMU_COUNT_MMA(K) \
    EMU_COUNT(lane() == 0 ? count_products(site, name_of(f), 2 * 16 * 8 * (uint64_t)(K), 0) : (void)0)
void mma(Site site, Format f, int K, float* c, const uint32_t* a, const uint32_t* b) {
    EMU_COUNT_MMA(K);
    const auto half = K == 16 ? multiply_warp<Format::HALF, 16, float> : multiply_warp<Format::HALF, 8, float>;
    const auto bfloat = K == 16 ? multiply_warp<Format::BFLOAT, 16, float> : multiply_warp<Format::BFLOAT, 8, float>;
    const auto tf32 = multiply_warp<Format::TF32, 8, float>;
    mma_of(site, f == Format::TF32 ? tf32 : f == Format::HALF ? half : bfloat, c, a, b);
}
void mma(Site site, Format f, int, int32_t* c, const uint32_t* a, const uint32_t* b) {
    EMU_COUNT_MMA(32);
    if (f == Format::SIGNED) mma_of(site, multiply_warp<Format::SIGNED, 32, int32_t>, c, a, b);
    else mma_of(site, multiply_warp<Format::UNSIGNED, 32, int32_t>, c, a, b);
}
// A sum of halves is computed as float32, and rounded.
void mma_halves(Site site, int K, uint32_t* c, const uint32_t* a, const uint32_t* b) {
    float sum[4];
    for (int n = 0; n < 4; n++) sum[n] = element<Format::HALF>(c[n / 2], n % 2);
    mma(site, Format::HALF, K, sum, a, b);
    for (int n = 0; n < 2; n++) c[n] = float_to_half(sum[2 * n]) | float_to_half(sum[2 * n + 1]) << 16;
}

// ---- Matrices to and from shared memory

namespace {
struct Address { uint32_t at; Rows8 all; };
}
static void hand_out(void* const* lane, int) {
    Rows8 all;
    for (int l = 0; l < 32; l++) all.at[l / 8][l % 8] = ((Address*)lane[l])->at;
    for (int l = 0; l < 32; l++) ((Address*)lane[l])->all = all;
}
Rows8 exchange_rows(Site site, int matrices, uint32_t at) {
    Address mine{at, {}};
    if (lane() < 8 * matrices && !check_shared(at, 16, 16, site.what, CALLER)) mine.at = ~0u;
    need_warps_of_32();
    meet(site, WARP, 0xffffffffu, &mine, hand_out);
    return mine.all;
}

}  // namespace emu

// How tensor cores add: as those of a compute capability (90 for 9.0) do, or, for 0, exactly.
extern "C" void hw4_adder(int cc) { emu::adder = cc ? emu::adder_of(cc) : emu::Adder{}; }
