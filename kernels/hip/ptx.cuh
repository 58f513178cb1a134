// Stands in for kernels/ptx.cuh where kernels are compiled by HIP for AMD's GPUs: the same functions, by Clang's own words.

#define UNROLL _Pragma("unroll")
#define ARCH 0  // none of NVIDIA's: no asynchronous copies

// 2^x in one instruction, where subnormal numbers are flushed to zero (-fgpu-flush-denormals-to-zero); 2^-inf is 0.
__device__ __forceinline__ float exp2_fast(float x) { return exp2f(x); }

// Shared memory (LDS) by 32-bit byte address.
#define LDS __attribute__((address_space(3)))
__device__ __forceinline__ unsigned shared_address(const void* p) { return (unsigned)(size_t)(const LDS void*)p; }

struct Four { float v[4]; };

typedef float Vector4 __attribute__((ext_vector_type(4)));
__device__ __forceinline__ Four load_shared(unsigned from) {
    const Vector4 x = *(const LDS Vector4*)(size_t)from;
    return {{x[0], x[1], x[2], x[3]}};
}
__device__ __forceinline__ void store_shared(unsigned to, float a, float b, float c, float d) {
    *(LDS Vector4*)(size_t)to = Vector4{a, b, c, d};
}
__device__ __forceinline__ void store_shared(unsigned to, float4 x) { store_shared(to, x.x, x.y, x.z, x.w); }
__device__ __forceinline__ void store_shared(unsigned to, float a) { *(LDS float*)(size_t)to = a; }

// Launches do not overlap.
__device__ __forceinline__ void griddep_launch() {}
__device__ __forceinline__ void griddep_wait() {}

// A wavefront's lanes work in step: what must not happen is that the compiler moves loads and stores across this.
__device__ __forceinline__ void order_wavefront() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
#define __syncwarp order_wavefront
