// Kernels as anybody writes them, for `hw4cli.emulate`.
#include <stdio.h>

__global__ void reverse(float* x) {
    __shared__ float mine[256];
    mine[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = mine[blockDim.x - 1 - threadIdx.x];
}
__global__ void racy(float* x) {
    __shared__ float mine[256];
    mine[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = mine[threadIdx.x ^ 32];
}
template <class T, int N> __global__ void scale(T* y, const T* x, T by, long n) {
    const long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * by * N;
}
struct Grid { int width, height; float factor; };
__global__ void transpose(float* to, const float* from, Grid g) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < g.width && y < g.height) to[x * g.height + y] = g.factor * from[y * g.width + x];
}
__global__ void sums(unsigned* total, const short* x, int n, const float* weights) {
    extern __shared__ unsigned part[];
    part[threadIdx.x] = threadIdx.x < n ? x[threadIdx.x] : 0;
    __syncthreads();
    for (int step = blockDim.x / 2; step; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) *total = part[0] + (weights ? 1000 : 0), printf("%u\n", part[0]);
}
__global__ void forever(int* x) {
    while (x[0] >= 0) __syncthreads();
}
__global__ void beyond(float* x, int n) { x[n + threadIdx.x] = 1; }

int main() { printf("main is not run\n"); }

__global__ void next_letter(unsigned char* x)
{
    x[threadIdx.x] = x[threadIdx.x] + 1;
}
