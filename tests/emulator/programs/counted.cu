// What kernels of lectures ask of memory, each with counts that follow from its text: tests/emulator/test_counts_of_programs.py.
#include <cstdio>

#define TILE 32
constexpr int N = 64, BLOCK = 128, BLOCKS = 8, BINS = 16;

// Rows are read side by side, columns written a row apart.
__global__ void transpose(const float* in, float* out, int n) {
    const int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    out[x * n + y] = in[y * n + x];  // transpose
}
template <int PITCH> __global__ void tiles(const float* in, float* out, int n) {
    __shared__ float tile[TILE][PITCH];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[y * n + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
    out[y * n + x] = tile[threadIdx.x][threadIdx.y];  // tiles
}
// Of each 2, 4, 8, ... lanes one adds.
__global__ void interleaved(const float* in, float* out) {
    __shared__ float sums[BLOCK];
    const int t = threadIdx.x;
    sums[t] = in[blockIdx.x * BLOCK + t];
    __syncthreads();
    for (int step = 1; step < BLOCK; step *= 2) {
        if (t % (2 * step) == 0)
            sums[t] += sums[t + step];  // interleaved
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = sums[0];
}
// The first threads add: whole warps, until one is left.
__global__ void sequential(const float* in, float* out) {
    __shared__ float sums[BLOCK];
    const int t = threadIdx.x;
    sums[t] = in[blockIdx.x * BLOCK + t];
    __syncthreads();
    for (int step = BLOCK / 2; step > 0; step /= 2) {
        if (t < step)
            sums[t] += sums[t + step];  // sequential
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = sums[0];
}
// All lanes of a warp count in the same word, or each in its own.
__global__ void histogram(const int* in, int* counts) {
    __shared__ int own[BINS];
    if (threadIdx.x < BINS) own[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&own[in[blockIdx.x * BLOCK + threadIdx.x]], 1);  // histogram
    __syncthreads();
    if (threadIdx.x < BINS) atomicAdd(&counts[threadIdx.x], own[threadIdx.x]);  // all
}
__global__ void polynomial(const float* in, float* out) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    const float x = in[i];
    float y = 3.0f;
    for (int k = 0; k < 10; k++) y = y * x + 1.0f;  // fused
    out[i] = (y + x) * expf(x);  // apart
}

int main() {
    float *in, *out;
    int *keys, *counts, host[BLOCK * BLOCKS];
    cudaMalloc(&in, N * N * sizeof(float)), cudaMalloc(&out, N * N * sizeof(float));
    cudaMalloc(&keys, sizeof host), cudaMalloc(&counts, BINS * sizeof(int));
    for (int i = 0; i < BLOCK * BLOCKS; i++) host[i] = i / 32 % 2 ? 3 : i % BINS;  // of two warps, one has one key
    cudaMemcpy(keys, host, sizeof host, cudaMemcpyHostToDevice);
    cudaMemset(in, 0, N * N * sizeof(float)), cudaMemset(counts, 0, BINS * sizeof(int));
    const dim3 grid(N / TILE, N / TILE), block(TILE, TILE);
    for (int i = 0; i < 2; i++) transpose<<<grid, block>>>(in, out, N);
    tiles<32><<<grid, block>>>(in, out, N);
    tiles<33><<<grid, block>>>(in, out, N);
    interleaved<<<BLOCKS, BLOCK>>>(in, out);
    sequential<<<BLOCKS, BLOCK>>>(in, out);
    histogram<<<BLOCKS, BLOCK>>>(keys, counts);
    polynomial<<<BLOCKS, BLOCK>>>(in, out);
    cudaMemcpy(host, counts, BINS * sizeof(int), cudaMemcpyDeviceToHost);
    printf("%d of %d\n", host[3], BLOCK * BLOCKS);
    cudaFree(in), cudaFree(out), cudaFree(keys), cudaFree(counts);
    return 0;
}
