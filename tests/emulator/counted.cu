// Requests, conflicts and operations that are known beforehand: `splits` is a stride, in words.
#include "probe.cuh"

KERNEL(strided) { o[threadIdx.x] = q[threadIdx.x * splits]; }

extern __shared__ float words[];
KERNEL(conflicts) {
    for (int i = threadIdx.x; i < 2048; i += blockDim.x) words[i] = q[i];
    __syncthreads();
    volatile float* strided = words;
    o[threadIdx.x] = strided[threadIdx.x % 32 * splits];
}
// 16 bytes of each lane; of splits lanes the same.
KERNEL(vectors) {
    for (int i = threadIdx.x; i < 512; i += blockDim.x) words[i] = q[i];
    __syncthreads();
    const float4 x = ((const float4*)words)[threadIdx.x % 32 / splits];
    o[threadIdx.x] = x.x + x.y + x.z + x.w;
}
// Words side by side, which CUDA's compiler loads together, and again, which it does not.
KERNEL(side_by_side) {
    for (int i = threadIdx.x; i < 512; i += blockDim.x) words[i] = q[i];
    __syncthreads();
    float sum = 0;
    for (int n = 0; n < 8; n++) sum += words[(splits & 1) + n % 4 + 8 * (threadIdx.x % 32)];
    o[threadIdx.x] = sum;
}
KERNEL(operations) {
    float x = q[threadIdx.x];
    for (int n = 0; n < splits; n++) x = x * k[n] + v[n];
    if (threadIdx.x % 32 < 8) x = exp2f(x) / 3.0f;
    o[threadIdx.x] = x + __shfl_xor_sync(0xffffffffu, x, 1);
    __syncthreads();
    atomicAdd(&o[blockDim.x], 1.0f);
}
