// student INPUTFILE OUTPUTFILE: FlashAttention as a first version of the homework has it, to be judged and profiled.
//
// A block keeps 32 rows of Q and goes through K and V in tiles of 32 keys, all in shared memory; a thread computes one score
// of a tile, and one or two columns of O. Softmax is online, each thread looks at its whole row of scores.
// Rows of K lie as they come: 32 threads that read a column of it meet in one bank. `student-padded` is the same text with
// PAD=1, a float more a row, where they do not. What a profile says of the two: docs/profile.md.
// Build: make students
// Exit status: 0 all right, 2 wrong usage or a bad file, 3 the machine cannot.

#include <cmath>
#include <cstdio>
#include <cstdlib>

#ifndef PAD
#define PAD 0
#endif

constexpr int BR = 32, BC = 32;

// kernel
template <int D>
__global__ void attention(const float* q, const float* k, const float* v, float* o, int N) {
    __shared__ float Q[BR][D], K[BC][D + PAD], V[BC][D], S[BR][BC];
    const int row = threadIdx.x / BC, key = threadIdx.x % BC;
    const size_t matrix = (size_t)N * D, first = (size_t)blockIdx.x * BR * D;
    q += blockIdx.y * 3 * matrix + first;  // of each batch there are Q, K and V
    k += blockIdx.y * 3 * matrix;
    v += blockIdx.y * 3 * matrix;
    o += blockIdx.y * matrix + first;

    for (int x = key; x < D; x += BC) Q[row][x] = q[row * D + x];
    float m = -INFINITY, l = 0, O[D / BC] = {};

    for (int tile = 0; tile < N; tile += BC) {
        for (int x = key; x < D; x += BC) {
            K[row][x] = k[(size_t)(tile + row) * D + x];
            V[row][x] = v[(size_t)(tile + row) * D + x];
        }
        __syncthreads();

        float s = 0;
        for (int x = 0; x < D; x++) s += Q[row][x] * K[key][x];
        S[row][key] = s / sqrtf(D);
        __syncthreads();

        float m_new = m, sum = 0, sums[D / BC] = {};
        for (int j = 0; j < BC; j++) m_new = fmaxf(m_new, S[row][j]);
        for (int j = 0; j < BC; j++) {
            const float p = expf(S[row][j] - m_new);
            sum += p;
            for (int c = 0; c < D / BC; c++) sums[c] += p * V[j][key + c * BC];
        }
        const float old = expf(m - m_new);
        l = l * old + sum, m = m_new;
        for (int c = 0; c < D / BC; c++) O[c] = O[c] * old + sums[c];
        __syncthreads();
    }
    for (int c = 0; c < D / BC; c++) o[row * D + key + c * BC] = O[c] / l;
}
// program

[[noreturn]] void fail(int status, const char* what, const char* why) {
    fprintf(stderr, "student: %s: %s\n", what, why);
    exit(status);
}

void check(cudaError_t error, const char* doing) {
    if (error != cudaSuccess) fail(3, doing, cudaGetErrorString(error));
}

int main(int count, char** words) {
    if (count != 3) fail(2, "wrong usage", "student INPUTFILE OUTPUTFILE");
    FILE* file = fopen(words[1], "rb");
    int size[3];
    if (!file || fread(size, sizeof(int), 3, file) != 3) fail(2, words[1], "cannot be read");
    const int B = size[0], N = size[1], d = size[2];
    if (B < 1 || B > 65535 || N < BC || N % BC || (d != 32 && d != 64))
        fail(2, words[1], "N must be a multiple of 32, d 32 or 64, and B at most 65535");
    const size_t elements = (size_t)B * N * d;
    float* data = (float*)malloc(3 * elements * sizeof(float));
    if (!data) fail(3, words[1], "there is not enough memory");
    if (fread(data, sizeof(float), 3 * elements, file) != 3 * elements) fail(2, words[1], "is too short");
    fclose(file);

    float *qkv, *o;
    check(cudaMalloc(&qkv, 3 * elements * sizeof(float)), "memory for the input");
    check(cudaMalloc(&o, elements * sizeof(float)), "memory for the output");
    check(cudaMemcpy(qkv, data, 3 * elements * sizeof(float), cudaMemcpyHostToDevice), "copying the input");
    const dim3 blocks(N / BR, B);
    const size_t matrix = (size_t)N * d;
    const auto kernel = d == 32 ? attention<32> : attention<64>;
    kernel<<<blocks, BR * BC>>>(qkv, qkv + matrix, qkv + 2 * matrix, o, N);
    check(cudaGetLastError(), "the launch");
    check(cudaMemcpy(data, o, elements * sizeof(float), cudaMemcpyDeviceToHost), "the kernel");

    file = fopen(words[2], "wb");
    if (!file || fwrite(data, sizeof(float), elements, file) != elements || fclose(file)) fail(3, words[2], "cannot be written");
    return 0;
}
