#pragma once
// Instructions of Hopper (compute capability 9.0) beside those of bulk.cuh and wgmma.cuh: copies of boxes of tensors, barriers
// that groups of threads pass to each other, registers that they give each other, products of fp16 or bf16 numbers.

#include "bulk.cuh"
#include "wgmma.cuh"

struct alignas(64) TensorMap { unsigned long long opaque[16]; };  // as cuTensorMapEncodeTiled writes it: a CUtensorMap

// Copies a box of a tensor of four dimensions, and counts its bytes at the barrier; what lies outside the tensor becomes zeros.
__device__ __forceinline__ void copy_box(unsigned to, const TensorMap& map, int column, int row, int head, int batch,
                                         unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];"
                 ::"r"(to), "l"(&map), "r"(column), "r"(row), "r"(head), "r"(batch), "r"(barrier) : "memory");
}
// Barrier `id` is for 256 threads: 128 that wait, and 128 that arrive and go on.
__device__ __forceinline__ void wait_for_turn(int id) { asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory"); }
__device__ __forceinline__ void give_turn(int id) { asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory"); }

template <int COUNT> __device__ __forceinline__ void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
// The start of dynamic shared memory, where the kernel has no static one: a constant, so that no register holds it.
__device__ __forceinline__ unsigned shared_start(const void* dynamic) {
    if (shared_address(dynamic) != 1024) __trap();
    return 1024;
}
// The number of this thread's group of four warps: the same in all lanes, as the compiler then knows.
__device__ __forceinline__ int group_number() { return __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); }

#if BFLOAT16
#define ELEMENT "bf16"
#else
#define ELEMENT "f16"
#endif
// Two numbers rounded to 16 bits, x in the low half.
__device__ __forceinline__ unsigned pack(float x, float y) {
    unsigned r;
    asm("cvt.rn." ELEMENT "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    return r;
}
// The larger of `top` and the bits of x and y as integers: in the order of numbers, as far as they are positive. In assembly,
// because the compiler serialises products whose sums it sees used as integers (C7511).
__device__ __forceinline__ void raise_bits(int& top, float x, float y) {
    asm("{.reg .s32 a, b; mov.b32 a, %1; mov.b32 b, %2; max.s32 a, a, b; max.s32 %0, %0, a;}" : "+r"(top) : "f"(x), "f"(y));
}

#define C40 C32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define C48 C40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define IN40(c) IN32(c), FOUR((c)[8]), FOUR((c)[9])
#define IN48(c) IN40(c), FOUR((c)[10]), FOUR((c)[11])
#define PRODUCT(n) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." ELEMENT "." ELEMENT " {"

// c = a b, or, where `add`, c += a b: 64 rows times N columns, 16 deep, both from shared memory and K-major.
#define PRODUCT_COLUMNS(N, REGISTERS, u, v, w)                                                                       \
    __device__ __forceinline__ void product(float (&c)[N / 8][4], unsigned long long a, unsigned long long b, int add) { \
        asm volatile("{.reg .pred p; setp.ne.b32 p, %" #w ", 0; " PRODUCT(N) C##REGISTERS "}, %" #u ", %" #v         \
                     ", p, 1, 1, 0, 0;}" : IN##REGISTERS(c) : "l"(a), "l"(b), "r"(add));                             \
    }
PRODUCT_COLUMNS(64, 32, 32, 33, 34)
PRODUCT_COLUMNS(80, 40, 40, 41, 42)
PRODUCT_COLUMNS(96, 48, 48, 49, 50)
PRODUCT_COLUMNS(128, 64, 64, 65, 66)

// c += a b, a from registers, b's rows one after the other (MN-major).
#define PRODUCT_ROWS(N, REGISTERS, u, v, w, x, y)                                                                    \
    __device__ __forceinline__ void product_rows(float (&c)[N / 8][4], const unsigned* a, unsigned long long b) {    \
        asm volatile("{.reg .pred p; setp.eq.b32 p, 0, 0; " PRODUCT(N) C##REGISTERS "}, {%" #u ",%" #v ",%" #w ",%" #x \
                     "}, %" #y ", p, 1, 1, 1;}"                                                                      \
                     : IN##REGISTERS(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                       \
    }
PRODUCT_ROWS(32, 16, 16, 17, 18, 19, 20)
PRODUCT_ROWS(64, 32, 32, 33, 34, 35, 36)
PRODUCT_ROWS(96, 48, 48, 49, 50, 51, 52)
PRODUCT_ROWS(128, 64, 64, 65, 66, 67, 68)

// The same for 64 columns and eight more, whose registers are apart.
__device__ __forceinline__ void product_rows(float (&c)[8][4], float (&more)[4], const unsigned* a, unsigned long long b) {
    asm volatile("{.reg .pred p; setp.eq.b32 p, 0, 0; " PRODUCT(72) C32 ",%32,%33,%34,%35}, {%36,%37,%38,%39}, %40, p, 1, 1, 1;}"
                 : IN32(c), FOUR(more) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
