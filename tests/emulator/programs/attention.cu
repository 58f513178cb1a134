// Attention as a student may write it: one file, its own reading and writing, float32. Right for N that is a multiple of
// 32. Macros make its wrong twins: NO_BARRIER, LOCKSTEP, PAST_THE_END, UNWRITTEN.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call)                                                                      \
    do {                                                                                 \
        cudaError_t error = (call);                                                      \
        if (error != cudaSuccess) {                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error)); \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

constexpr int ROWS = 32, KEYS = 32;

template <int D>
__global__ void attention(const float* Q, const float* K, const float* V, float* O, int N, float scale)
{
    extern __shared__ float tile[];
    float *k = tile, *v = tile + KEYS * (D + 1);
    const int row = blockIdx.x * ROWS + threadIdx.x, batch = blockIdx.y;
    const size_t first = (size_t)batch * N * D;
    float q[D], o[D], largest = -INFINITY, sum = 0;
    for (int i = 0; i < D; i++) {
        q[i] = Q[first + row * D + i];
        o[i] = 0;
    }
    for (int begin = 0; begin < N; begin += KEYS) {
#ifndef NO_BARRIER
        __syncthreads();
#endif
        for (int i = threadIdx.y * ROWS + threadIdx.x; i < KEYS * D; i += ROWS * blockDim.y) {
            k[i / D * (D + 1) + i % D] = K[first + begin * D + i];
            v[i / D * (D + 1) + i % D] = V[first + begin * D + i];
        }
#ifndef LOCKSTEP
        __syncthreads();
#endif
#ifdef PAST_THE_END
        const int end = KEYS + 1;
#else
        const int end = KEYS;
#endif
        for (int j = 0; j < end; j++) {
            float score = 0;
            for (int i = 0; i < D; i++) score += q[i] * k[j * (D + 1) + i];
            score *= scale;
            const float now = fmaxf(largest, score), shrink = expf(largest - now), weight = expf(score - now);
            sum = sum * shrink + weight;
            for (int i = 0; i < D; i++) o[i] = o[i] * shrink + weight * v[j * (D + 1) + i];
            largest = now;
        }
    }
    if (threadIdx.y == 0)
        for (int i = 0; i < D; i++) O[first + row * D + i] = o[i] / sum;
}

int main(int argc, char** argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s INPUT OUTPUT\n", argv[0]);
        return 2;
    }
    FILE* file = fopen(argv[1], "rb");
    int B, N, d;
    if (!file || fread(&B, 4, 1, file) != 1 || fread(&N, 4, 1, file) != 1 || fread(&d, 4, 1, file) != 1) return 1;
    const size_t count = (size_t)B * N * d, bytes = count * sizeof(float);
    float *host[3], *device[3], *result;
    for (int i = 0; i < 3; i++) host[i] = (float*)malloc(bytes);
    for (int b = 0; b < B; b++)
        for (int i = 0; i < 3; i++)
            if (fread(host[i] + (size_t)b * N * d, 4, (size_t)N * d, file) != (size_t)N * d) return 1;
    fclose(file);
    for (int i = 0; i < 3; i++) {
        CHECK(cudaMalloc(&device[i], bytes));
        CHECK(cudaMemcpy(device[i], host[i], bytes, cudaMemcpyHostToDevice));
    }
    CHECK(cudaMalloc(&result, bytes));
#ifdef LOCKSTEP
    const dim3 grid(N / ROWS, B), block(ROWS);
#else
    const dim3 grid(N / ROWS, B), block(ROWS, 2);
#endif
    const size_t shared = 2 * KEYS * (d + 1) * sizeof(float);
    if (d == 32) attention<32><<<grid, block, shared>>>(device[0], device[1], device[2], result, N, 1 / sqrtf(d));
    else attention<64><<<grid, block, shared>>>(device[0], device[1], device[2], result, N, 1 / sqrtf(d));
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host[0], result, bytes, cudaMemcpyDeviceToHost));
    file = fopen(argv[2], "wb");
    if (!file || fwrite(host[0], 4, count, file) != count) return 1;
    fclose(file);
    for (int i = 0; i < 3; i++) {
        cudaFree(device[i]);
        free(host[i]);
    }
    cudaFree(result);
    return 0;
}
