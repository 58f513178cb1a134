// Blocks of one launch that wait for each other: `blocks NAME`, and `blocks NAME right` for the same done rightly. A comment
// names each line that a finding must name.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

// Each block waits for the one behind it, which comes later.
__global__ void backwards(volatile int* done, int* out, bool right)
{
    const int b = blockIdx.x;
    __shared__ int before;
    if (threadIdx.x == 0) {
        if (b + 1 < gridDim.x) while (done[b + 1] == 0) {}  // backwards
        __threadfence();
        before = b + 1 < gridDim.x ? out[b + 1] : 0;  // backwards
        out[b] = before + 1;  // backwards
        if (right) __threadfence();
        done[b] = 1;
    }
    __syncthreads();
    if (threadIdx.x == 1 && before != gridDim.x - 1 - b) printf("wrong\n");
}
// A barrier of all blocks, by hand.
__device__ int arrived;
__global__ void by_hand(int* data, int* out, bool right)
{
    const int n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i;  // by-hand
    if (right) __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(&arrived, 1);
        while (*(volatile int*)&arrived < gridDim.x) {}
        __threadfence();
    }
    __syncthreads();
    out[i] = data[n - 1 - i];  // by-hand
}
__global__ void whole_grid(int* data, int* out, bool right)
{
    const int n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int round = 0; round < 3; round++) {
        data[i] = i + round;  // grid
        if (right) cg::this_grid().sync();
        out[i] = data[n - 1 - i];  // grid
        if (right) cg::this_grid().sync();
    }
}
__global__ void some_blocks(int* data, bool right)
{
    if (!right && blockIdx.x == 1) return;
    cg::this_grid().sync();  // some-blocks
    data[blockIdx.x] = 1;
}
// Two blocks, each of which waits for the other first.
__global__ void circle(volatile int* done, bool right)
{
    if (threadIdx.x) return;
    if (right && blockIdx.x == 0) done[0] = 1;
    while (done[1 - blockIdx.x] == 0) {}  // circle
    done[blockIdx.x] = 1;
}
// All wait for the last block: right as long as all of them fit on the GPU.
__global__ void crowd(volatile int* done)
{
    if (blockIdx.x == gridDim.x - 1) done[0] = 1;
    while (done[0] == 0) {}  // crowd
}

// Who waits says so, and is woken up by who has seen that; who comes too early does not.
__device__ int waits, signal_word;
__global__ void wake_up(bool right)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        atomicExch(&waits, 1);
        while (atomicAdd(&signal_word, 0) == 0) {}  // wake-up
    } else if (right || atomicAdd(&waits, 0)) {
        atomicExch(&signal_word, 1);
    }
}

int main(int, char** words)
{
    bool right = words[2] != nullptr;
    int *done, *data, *out;
    cudaMalloc(&done, 64), cudaMalloc(&data, 1024), cudaMalloc(&out, 1024);
    cudaMemset(done, 0, 64), cudaMemset(data, 0, 1024), cudaMemset(out, 0, 1024);
    const auto is = [&](const char* name) { return !strcmp(words[1], name); };
    void* both[] = {&data, &out, &right};
    void* one[] = {&data, &right};
    if (is("backwards")) backwards<<<8, 64>>>(done, out, right);
    if (is("by-hand")) by_hand<<<4, 64>>>(data, out, right);
    if (is("grid")) cudaLaunchCooperativeKernel((void*)whole_grid, dim3(4), dim3(64), both, 0, 0);
    if (is("some-blocks")) cudaLaunchCooperativeKernel(some_blocks, dim3(4), dim3(64), one);
    if (is("no-cooperation") && right) cudaLaunchCooperativeKernel((const void*)some_blocks, dim3(4), dim3(64), one);
    if (is("no-cooperation") && !right) some_blocks<<<4, 64>>>(data, true);
    if (is("too-many")) cudaLaunchCooperativeKernel(some_blocks, dim3(right ? 4 : 100000), dim3(64), one);
    if (is("circle")) circle<<<2, 64>>>(done, right);
    if (is("wake-up")) wake_up<<<2, 32>>>(right);
    if (is("crowd")) crowd<<<right ? 20 : 330, 1, 48 << 10>>>(done);
    if (cudaGetLastError() != cudaSuccess) puts("refused");
    int host[256];
    cudaMemcpy(host, out, 1024, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 256 && (is("by-hand") || is("grid")) && right; i++)
        if (host[i] != 255 - i + 2 * is("grid")) puts("wrong");
    cudaFree(done), cudaFree(data), cudaFree(out);
}
