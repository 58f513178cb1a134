// Functions of kernels/ptx.cuh, mma.cuh and bulk.cuh, each once, by their own text: what they do is what their stand-ins do where the
// kernels run on the CPU.
#include <cstdio>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define __forceinline__ inline
#include "ptx.cuh"
#include "mma.cuh"
#include "bulk.cuh"

#define CHECK(what) do { if (!(what)) printf("not so: %s\n", #what); } while (0)

__global__ void numbers(float* out)
{
    alignas(16) __shared__ float own[16];
    const int t = threadIdx.x;
    const unsigned at = shared_address(own);
    if (t == 0) {
        CHECK(exp2_fast(3) == 8);
        CHECK(log2_fast(8) == 3);
        CHECK(halves(1, 2) == (0x3c00u | 0x4000u << 16));
        store_shared(at, 1.0f), store_shared(at + 8, 2.0f, 3.0f);
        CHECK(own[0] == 1 && own[2] == 2 && own[3] == 3);
        store_shared(at + 16, float4{4, 5, 6, 7}), store_shared(at + 32, 8.0f, 9.0f, 10.0f, 11.0f);
        const Four four = load_shared(at + 16);
        CHECK(four.v[0] == 4 && four.v[1] == 5 && four.v[2] == 6 && four.v[3] == 7);
        const float2 two = load_shared2(at + 40);
        CHECK(two.x == 10 && two.y == 11 && own[8] == 8 && own[9] == 9);
        unsigned* words = (unsigned*)own;
        store_shared(at, uint4{1, 2, 3, 4}), store_shared(at + 16, uint2{5, 6}), store_shared(at + 24, 7u);
        for (unsigned n = 0; n < 7; n++) CHECK(words[n] == n + 1);
        store_shared(at + 2, (unsigned short)9);
        CHECK(words[0] == (1u | 9u << 16));
        store_once(out, float4{1, 2, 3, 4});
    }
    griddep_launch(), griddep_wait();
}

// A copy is used when it has been waited for, and not before.
__global__ void copies(const float* from, float* to, int way)
{
    __shared__ alignas(16) float first[128], second[128];
    const int t = threadIdx.x;
    copy16_async(shared_address(first + 4 * t), from + 4 * t, true);
    if (way == 0) {
        cp_async_wait_all();
    } else {
        cp_async_commit();
        if (way == 3) copy16_part(shared_address(second + 4 * t), from + 4 * t, t % 2 ? 8 : -8);
        else copy16_async(shared_address(second + 4 * t), from + 4 * t, t % 2);
        cp_async_commit();
        if (way == 1) cp_async_wait<1>();
        else cp_async_wait<0>();
    }
    __syncthreads();
    to[t] = first[127 - t];
    if (way >= 2) to[t] += second[127 - t];
    if (way == 1) {
        cp_async_wait<0>();
        __syncthreads();
    }
}

// What one block has written is another's when a count says so.
__global__ void hand_over(int* data, int* counts)
{
    const int t = threadIdx.x;
    if (blockIdx.x == 0) {
        data[t] = t + 1;
        __syncthreads();
        if (t == 0) semaphore_release(counts, 7);
        data[32 + t] = 2 * t;
        __syncthreads();
        if (t == 0) fence_proxy_async(), semaphore_add(counts + 1, 1);
    } else {
        if (t == 0) semaphore_wait(counts, 7);
        __syncthreads();
        CHECK(data[t] == t + 1);
        if (t == 0) semaphore_wait(counts + 1, 1);
        __syncthreads();
        CHECK(data[32 + t] == 2 * t);
    }
}

int main()
{
    float *from, *to, host[128], result[32];
    for (int n = 0; n < 128; n++) host[n] = n + 1;
    cudaMalloc(&from, sizeof host), cudaMalloc(&to, sizeof result);
    cudaMemcpy(from, host, sizeof host, cudaMemcpyHostToDevice);
    numbers<<<1, 32>>>(to);
    cudaMemcpy(result, to, 16, cudaMemcpyDeviceToHost);
    CHECK(result[0] == 1 && result[3] == 4);
    for (int way = 0; way < 4; way++) {
        copies<<<1, 32>>>(from, to, way);
        cudaMemcpy(result, to, sizeof result, cudaMemcpyDeviceToHost);
        for (int t = 0; t < 32; t++) {
            const int at = 127 - t;
            const bool more = way == 2 ? at / 4 % 2 : way == 3 && at / 4 % 2 && at % 4 < 2;
            CHECK(result[t] == at + 1 + (more ? at + 1 : 0));
        }
    }
    int *data, *counts;
    cudaMalloc(&data, 64 * sizeof(int)), cudaMalloc(&counts, 2 * sizeof(int)), cudaMemset(counts, 0, 2 * sizeof(int));
    hand_over<<<2, 32>>>(data, counts);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    cudaFree(from), cudaFree(to), cudaFree(data), cudaFree(counts);
    printf("done\n");
}
