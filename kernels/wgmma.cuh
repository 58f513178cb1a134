#pragma once
// The tensor-core instructions of a warpgroup: four warps multiply 64 rows (compute capability 9.0, and no other).
//
// The numbers are fp16, or bf16 where BFLOAT16. Warp w of the group holds rows 16 w to 16 w + 15 of c, in the layout of mma. A
// matrix in shared memory is a descriptor (PTX ISA, "Matrix-Descriptor Format").

#include "sixteen.cuh"

#if WARPGROUPS
// Orders the threads' accesses to the registers of c and a before the products that follow.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// The products since the last call are a group.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Wait until at most LATER groups of products are still computed.
template <int LATER> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LATER) : "memory");
}
// A fence for the compiler: the tensor cores use these registers, and accesses to them must not move across this.
template <int N> __device__ __forceinline__ void fence_registers(float (&c)[N][4]) {
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 4; e++) asm volatile("" : "+f"(c[n][e])::"memory");
}
template <int N> __device__ __forceinline__ void fence_registers(int (&c)[N][4]) {
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 4; e++) asm volatile("" : "+r"(c[n][e])::"memory");
}

#define C16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define C24 C16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define C32 C16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define C40 C32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define C48 C40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define C64 C32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47" \
                ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define C96 C64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79" \
                ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define C128 C96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111" \
                 ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define FOUR(c) "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])
#define IN16(c) FOUR((c)[0]), FOUR((c)[1]), FOUR((c)[2]), FOUR((c)[3])
#define IN24(c) IN16(c), FOUR((c)[4]), FOUR((c)[5])
#define IN32(c) IN16(c), IN16((c) + 4)
#define IN40(c) IN32(c), FOUR((c)[8]), FOUR((c)[9])
#define IN48(c) IN40(c), FOUR((c)[10]), FOUR((c)[11])
#define IN64(c) IN32(c), IN32((c) + 8)
#define IN96(c) IN64(c), IN32((c) + 16)
#define IN128(c) IN64(c), IN64((c) + 16)
#define WGMMA(n) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." ELEMENT "." ELEMENT " {"
#define ADD_WGMMA(n) "{.reg .pred p; setp.eq.u32 p, 0, 0; " WGMMA(n)

// c += a b, 64 rows times N columns, 16 deep; b's columns lie one after the other (K-major); a from registers or from shared
// memory. The numbers are those of the operands behind the registers of c.
#define WGMMA_COLUMNS(N, REGISTERS, u, v, w, x, y)                                                                   \
    __device__ __forceinline__ void wgmma(float (&c)[N / 8][4], const unsigned* a, unsigned long long b) {           \
        asm volatile(ADD_WGMMA(N) C##REGISTERS "}, {%" #u ",%" #v ",%" #w ",%" #x "}, %" #y ", p, 1, 1, 0;}"        \
                     : IN##REGISTERS(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                       \
    }                                                                                                                \
    __device__ __forceinline__ void wgmma(float (&c)[N / 8][4], unsigned long long a, unsigned long long b) {        \
        asm volatile(ADD_WGMMA(N) C##REGISTERS "}, %" #u ", %" #v ", p, 1, 1, 0, 0;}"                               \
                     : IN##REGISTERS(c) : "l"(a), "l"(b));                                                           \
    }
WGMMA_COLUMNS(32, 16, 16, 17, 18, 19, 20)
WGMMA_COLUMNS(64, 32, 32, 33, 34, 35, 36)
WGMMA_COLUMNS(128, 64, 64, 65, 66, 67, 68)

// c += a b of integers of 8 bits, 64 columns, 32 deep; both from shared memory.
#define FOUR_OF(c) "+r"((c)[0]), "+r"((c)[1]), "+r"((c)[2]), "+r"((c)[3])
__device__ __forceinline__ void wgmma(int (&c)[8][4], unsigned long long a, unsigned long long b) {
    asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {" C32
                 "}, %32, %33, p;}"
                 : FOUR_OF(c[0]), FOUR_OF(c[1]), FOUR_OF(c[2]), FOUR_OF(c[3]), FOUR_OF(c[4]), FOUR_OF(c[5]), FOUR_OF(c[6]),
                   FOUR_OF(c[7]) : "l"(a), "l"(b));
}

// c = a b, or, where `add`, c += a b; both from shared memory; ROWS_OF_A: a's rows one after the other (MN-major).
#define WGMMA_FROM_ZERO(NAME, ROWS_OF_A, N, REGISTERS, u, v, w)                                                      \
    __device__ __forceinline__ void NAME(float (&c)[N / 8][4], unsigned long long a, unsigned long long b, int add) { \
        asm volatile("{.reg .pred p; setp.ne.b32 p, %" #w ", 0; " WGMMA(N) C##REGISTERS "}, %" #u ", %" #v           \
                     ", p, 1, 1, " #ROWS_OF_A ", 0;}" : IN##REGISTERS(c) : "l"(a), "l"(b), "r"(add));                \
    }
WGMMA_FROM_ZERO(wgmma, 0, 48, 24, 24, 25, 26)
WGMMA_FROM_ZERO(wgmma, 0, 64, 32, 32, 33, 34)
WGMMA_FROM_ZERO(wgmma, 0, 80, 40, 40, 41, 42)
WGMMA_FROM_ZERO(wgmma, 0, 96, 48, 48, 49, 50)
WGMMA_FROM_ZERO(wgmma, 0, 128, 64, 64, 65, 66)
WGMMA_FROM_ZERO(wgmma_rows_of_a, 1, 64, 32, 32, 33, 34)
WGMMA_FROM_ZERO(wgmma_rows_of_a, 1, 80, 40, 40, 41, 42)
// The same with a from registers.
__device__ __forceinline__ void wgmma(float (&c)[8][4], const unsigned* a, unsigned long long b, int add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0; " WGMMA(64) C32 "}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;}"
                 : IN32(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

// c += a b, a from registers, b's rows one after the other (MN-major).
#define WGMMA_ROWS(N, REGISTERS, u, v, w, x, y)                                                                      \
    __device__ __forceinline__ void wgmma_rows(float (&c)[N / 8][4], const unsigned* a, unsigned long long b) {      \
        asm volatile(ADD_WGMMA(N) C##REGISTERS "}, {%" #u ",%" #v ",%" #w ",%" #x "}, %" #y ", p, 1, 1, 1;}"        \
                     : IN##REGISTERS(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                       \
    }
WGMMA_ROWS(32, 16, 16, 17, 18, 19, 20)
WGMMA_ROWS(64, 32, 32, 33, 34, 35, 36)
WGMMA_ROWS(96, 48, 48, 49, 50, 51, 52)
WGMMA_ROWS(128, 64, 64, 65, 66, 67, 68)
WGMMA_ROWS(192, 96, 96, 97, 98, 99, 100)
WGMMA_ROWS(256, 128, 128, 129, 130, 131, 132)

// The same with N columns and eight more, whose registers are the four behind those of c.
#define WGMMA_MORE_ROWS(N, MORE, REGISTERS, q, r, s, t, u, v, w, x, y)                                                    \
    __device__ __forceinline__ void wgmma_rows(float (&c)[N / 8][4], float (&more)[4], const unsigned* a,            \
                                               unsigned long long b) {                                               \
        asm volatile(ADD_WGMMA(MORE) C##REGISTERS ",%" #q ",%" #r ",%" #s ",%" #t "}, {%" #u ",%" #v ",%" #w ",%" #x       \
                     "}, %" #y ", p, 1, 1, 1;}"                                                                      \
                     : IN##REGISTERS(c), FOUR(more) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));           \
    }
WGMMA_MORE_ROWS(32, 40, 16, 16, 17, 18, 19, 20, 21, 22, 23, 24)
WGMMA_MORE_ROWS(64, 72, 32, 32, 33, 34, 35, 36, 37, 38, 39, 40)
WGMMA_MORE_ROWS(128, 136, 64, 64, 65, 66, 67, 68, 69, 70, 71, 72)
#endif  // WARPGROUPS
