// roofs: what a GPU reaches at best, one resource a kernel: loops of nothing but loads, of nothing but FFMA, ...
//
// Each has two parameters: where to write (never happens, but the compiler cannot know), and how many rounds to take. A round
// of a thread, warp or group of four warps is counted in hw4cli/lab/measure/roofkernels.py.

#include "mma.cuh"
#include "wgmma.cuh"

constexpr int CHAINS = 16;  // independent of each other: more than an instruction's latency

extern __shared__ uint4 shared[];

// fp16 or bf16 numbers between 1/2 and 1 and their negatives, two in 32 bits: zeros would take less power than data does.
__device__ __forceinline__ unsigned pair_of_halves(unsigned n) { return (n * 2654435761u & 0x83ff83ffu) | 0x38003800u; }

template <class T> __device__ __forceinline__ void multiply_and_add(float* to, int rounds, T a, T b) {
    T x[CHAINS], sum = 0;
    UNROLL for (int n = 0; n < CHAINS; n++) x[n] = n + b;
    for (int r = 0; r < rounds; r++)
        UNROLL for (int k = 0; k < 8; k++)
            UNROLL for (int n = 0; n < CHAINS; n++) x[n] = fma(x[n], a, b);
    UNROLL for (int n = 0; n < CHAINS; n++) sum += x[n];
    if (sum == -1) *to = sum;
}
extern "C" __global__ void __launch_bounds__(THREADS) roof_ffma(float* to, int rounds) {
    multiply_and_add(to, rounds, 0.999f + 1e-9f * rounds, 1e-3f * threadIdx.x);
}
extern "C" __global__ void __launch_bounds__(THREADS) roof_dfma(float* to, int rounds) {
    multiply_and_add(to, rounds, 0.999 + 1e-9 * rounds, 1e-3 * threadIdx.x);
}

extern "C" __global__ void __launch_bounds__(THREADS) roof_exp2(float* to, int rounds) {
    float x[CHAINS];
    UNROLL for (int n = 0; n < CHAINS; n++) x[n] = -1e-3f * (threadIdx.x + n);
    for (int r = 0; r < rounds; r++)
        UNROLL for (int k = 0; k < 8; k++)
            UNROLL for (int n = 0; n < CHAINS; n++) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[n]));
    float sum = 0;
    UNROLL for (int n = 0; n < CHAINS; n++) sum += x[n];
    if (sum == -1) *to = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS) roof_shared(float* to, int rounds) {
    for (int n = threadIdx.x; n < THREADS * CHAINS / 4; n += THREADS) shared[n] = uint4{n * 3u, n * 5u, n * 7u, n * 11u};
    __syncthreads();
    const unsigned at = shared_address(shared) + threadIdx.x * 16;
    unsigned x = 0;
    for (int r = 0; r < rounds; r++)
        UNROLL for (int n = 0; n < CHAINS; n++) {
            uint4 v;
            asm volatile("ld.volatile.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at + n % 4 * THREADS * 16));
            x ^= v.x ^ v.y ^ v.z ^ v.w;
        }
    if (x == 1) *to = x;
}

// Reads of BYTES that stay in the L2 cache, past the multiprocessors' own. The blocks begin at different places.
extern "C" __global__ void __launch_bounds__(THREADS) roof_l2(float* to, int rounds) {
    const char* from = (const char*)to;
    unsigned x = 0, at = (blockIdx.x * CHAINS * THREADS + threadIdx.x) * 16;
    for (int r = 0; r < rounds; r++, at += gridDim.x * CHAINS * THREADS * 16)
        UNROLL for (int n = 0; n < CHAINS; n++) {
            uint4 v;
            asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                         : "l"(from + (at + n * THREADS * 16 & BYTES - 1)));
            x ^= v.x ^ v.y ^ v.z ^ v.w;
        }
    if (x == 1) *to = x;
}

// Bytes of integers, four in 32 bits.
__device__ __forceinline__ unsigned four_bytes(unsigned n) { return n * 2654435761u ^ n << 7; }

#if ARCH >= 800
// Products of a warp: registers of A, of B, of the sums; R is the letter of TYPE's registers, NUMBERS makes operands.
#define ROOF_MMA(NAME, INSTRUCTION, TYPE, R, NUMBERS)                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS, 4) NAME(float* to, int rounds) {                           \
        TYPE c[8][4] = {}, sum = 0;                                                                                  \
        unsigned a[4], b[2];                                                                                         \
        UNROLL for (int n = 0; n < 4; n++) a[n] = NUMBERS(threadIdx.x * 4 + n);                                      \
        UNROLL for (int n = 0; n < 2; n++) b[n] = NUMBERS(threadIdx.x * 2 + n + 7777);                               \
        for (int r = 0; r < rounds; r++)                                                                             \
            UNROLL for (int n = 0; n < CHAINS; n++)                                                                  \
                asm volatile("mma.sync.aligned." INSTRUCTION " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                             : "+" R(c[n % 8][0]), "+" R(c[n % 8][1]), "+" R(c[n % 8][2]), "+" R(c[n % 8][3])        \
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                    \
        UNROLL for (int n = 0; n < 32; n++) sum += c[n / 4][n % 4];                                                  \
        if (sum == -1) *to = sum;                                                                                    \
    }
ROOF_MMA(roof_mma_fp16, "m16n8k16.row.col.f32.f16.f16.f32", float, "f", pair_of_halves)
ROOF_MMA(roof_mma_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32", float, "f", pair_of_halves)
ROOF_MMA(roof_mma_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32", float, "f", pair_of_halves)
ROOF_MMA(roof_mma_int8, "m16n8k32.row.col.s32.s8.s8.s32", int, "r", four_bytes)
#endif

#if WARPGROUPS
#define INTS16(c) FOUR_OF((c)[0]), FOUR_OF((c)[1]), FOUR_OF((c)[2]), FOUR_OF((c)[3])
#define INTS64(c) INTS16(c), INTS16((c) + 4), INTS16((c) + 8), INTS16((c) + 12)
// Products of four warps: A in registers, B in shared memory, 32 bytes of each of 128 columns: not swizzled, groups of 8 rows
// of 16 bytes, 128 bytes from one to the next and 2048 across. SCALES follow the predicate that c is added to.
#define ROOF_WGMMA(NAME, INSTRUCTION, SCALES, TYPE, IN, NUMBERS)                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) NAME(float* to, int rounds) {                           \
        TYPE c[16][4] = {}, sum = 0;                                                                                 \
        unsigned a[4];                                                                                               \
        for (int n = threadIdx.x; n < 1024; n += THREADS) ((unsigned*)shared)[n] = NUMBERS(n);                       \
        UNROLL for (int n = 0; n < 4; n++) a[n] = NUMBERS(threadIdx.x * 4 + n + 7777);                               \
        asm volatile("fence.proxy.async;" ::: "memory");                                                             \
        __syncthreads();                                                                                             \
        const unsigned long long b = (shared_address(shared) & 0x3ffff) >> 4 | 128ull << 16 | 8ull << 32;            \
        for (int r = 0; r < rounds; r++) {                                                                           \
            fence_registers(c);                                                                                                 \
            wgmma_fence();                                                                                           \
            UNROLL for (int n = 0; n < CHAINS; n++)                                                                  \
                asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned." INSTRUCTION         \
                             " {" C64 "}, {%64,%65,%66,%67}, %68, p" SCALES ";}"                                     \
                             : IN(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                          \
            wgmma_commit();                                                                                             \
            wgmma_wait<0>();                                                                                         \
        }                                                                                                            \
        fence_registers(c);                                                                                                     \
        UNROLL for (int n = 0; n < 64; n++) sum += c[n / 4][n % 4];                                                  \
        if (sum == -1) *to = sum;                                                                                    \
    }
ROOF_WGMMA(roof_wgmma_fp16, "m64n128k16.f32.f16.f16", ", 1, 1, 0", float, IN64, pair_of_halves)
ROOF_WGMMA(roof_wgmma_bf16, "m64n128k16.f32.bf16.bf16", ", 1, 1, 0", float, IN64, pair_of_halves)
ROOF_WGMMA(roof_wgmma_tf32, "m64n128k8.f32.tf32.tf32", ", 1, 1", float, IN64, pair_of_halves)
ROOF_WGMMA(roof_wgmma_int8, "m64n128k32.s32.s8.s8", "", int, INTS64, four_bytes)
#endif
