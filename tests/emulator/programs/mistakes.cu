// One mistake of each kind, and beside it the same without: `mistakes NAME` or `mistakes NAME right`. A comment names
// each line that a finding must name.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <map>
#include <string>
#include <unistd.h>

static int* made(int n)
{
    int* p;
    cudaMalloc(&p, n * sizeof(int));
    cudaMemset(p, 0, n * sizeof(int));
    return p;
}

__global__ void shared_race(int* out, bool right)
{
    __shared__ int tile[64];
    tile[threadIdx.x] = threadIdx.x;  // shared-race
    if (right) __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];  // shared-race
}
__global__ void lockstep(int* out, bool right)
{
    __shared__ volatile int sums[32];
    const int t = threadIdx.x;
    sums[t] = t;
    for (int by = 16; by > 0; by /= 2) {
        if (right) __syncwarp();
        int x = sums[t] + (t < by ? sums[t + by] : 0);  // lockstep
        if (right) __syncwarp();
        sums[t] = x;  // lockstep
    }
    if (t == 0) out[0] = sums[0];
}
__global__ void block_race(int* out, bool right)
{
    if (right) atomicAdd(out, 1);
    else out[0] = out[0] + 1;  // block-race
}
struct Row { int x[7]; };
__global__ void copied(Row* rows, bool right)
{
    Row mine;
    for (int i = 0; i < 7; i++) mine.x[i] = threadIdx.x + 1;
    memcpy(&rows[right ? threadIdx.x : threadIdx.x / 2], &mine, sizeof mine);  // copied
}
__global__ void few_bytes(char* to, bool right)
{
    char mine[6];
    for (int i = 0; i < 6; i++) mine[i] = threadIdx.x + i;
    __builtin_memcpy(to + (right ? 6 : 4) * threadIdx.x, mine, sizeof mine);  // few-bytes
}
__constant__ int weights[32], powers[2] = {1, 2};
__constant__ const int primes[2] = {2, 3};
__global__ void constant(int* out, bool right)
{
    if (!right) weights[threadIdx.x % 32] = 7;  // constant
    out[threadIdx.x] = weights[threadIdx.x % 32] + powers[threadIdx.x % 2] + primes[threadIdx.x % 2];
}
__global__ void same_value(int* out, bool right)
{
    if (!right || threadIdx.x == 0) out[0] = 7;  // same-value
}
__global__ void divergence(int* out, bool right)
{
    if (right || threadIdx.x < 32) __syncthreads();  // divergence
    else __syncwarp();
    if (!right && threadIdx.x >= 32) __syncthreads();
    out[threadIdx.x] = 1;
}
__global__ void returned(int* out, int n, bool right)
{
    if (!right && threadIdx.x >= n) return;
    __syncthreads();  // returned
    if (threadIdx.x < n) out[threadIdx.x] = 1;
}
__global__ void bounds(int* out, int n, bool right)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (!right || i < n) out[i] = i;  // bounds
}
__global__ void shared_bounds(int* out, bool right)
{
    __shared__ int row[32];
    int* p = row;
    p[threadIdx.x + (right ? 0 : 1)] = 1;  // shared-bounds
    out[threadIdx.x] = p[threadIdx.x + (right ? 0 : 1)];
}
__global__ void misaligned(int* out, bool right)
{
    const int2 two = *(const int2*)(out + (right ? 2 : 1));  // misaligned
    out[0] = two.x + two.y;
}
__global__ void uninitialised(int* out, bool right)
{
    __shared__ int row[32];
    if (right || threadIdx.x < 16) row[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = row[threadIdx.x];  // uninitialised
}
__global__ void reads(int* out, const int* in) { out[threadIdx.x] = in[threadIdx.x]; }  // reads
__global__ void spins(volatile int* flag, bool right)
{
    if (right && threadIdx.x == 32) flag[0] = 1;
    while (flag[0] == 0) {  // spins
    }
}
__global__ void endless(int* out, int n)
{
    for (unsigned i = 1; i != n; i += 2) out[0] = i;  // endless: n is even
}
__global__ void much(float* out, int n)
{
    float sum = out[threadIdx.x];
    for (int i = 0; i < n; i++) sum = sum * 0.5f + out[(threadIdx.x + i) % 32];
    __syncthreads();
    out[threadIdx.x] = sum;
}
__global__ void turns(int* out, bool right)
{
    if (right) atomicAdd(out, 1);
    else atomicExch(out, threadIdx.x);  // turns
}
__global__ void below(int* out) { out[(int)threadIdx.x - 1] = 3; }  // below-bounds
__global__ void fill(int* out) { out[threadIdx.x] = 3; }

static void check(const char* what)
{
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) printf("%s: %s\n", what, cudaGetErrorString(error));
}

int main(int argc, char** argv)
{
    const std::string name = argc > 1 ? argv[1] : "";
    const bool right = argc > 2 && !strcmp(argv[2], "right");
    int host[256] = {}, *out = made(256), *in;
    if (name == "shared-race") shared_race<<<1, 64>>>(out, right);
    else if (name == "lockstep") lockstep<<<1, 32>>>(out, right);
    else if (name == "block-race") block_race<<<4, 1>>>(out, right);
    else if (name == "same-value") same_value<<<1, 64>>>(out, right);
    else if (name == "divergence") divergence<<<1, 64>>>(out, right);
    else if (name == "returned") returned<<<1, 64>>>(out, 40, right);
    else if (name == "bounds") bounds<<<3, 128>>>(out, 256, right);
    else if (name == "below-bounds") {
        in = made(32);
        below<<<1, 32>>>(right ? in + 1 : in);
        cudaFree(in);
    }
    else if (name == "shared-bounds") shared_bounds<<<1, 32>>>(out, right);
    else if (name == "misaligned") misaligned<<<1, 1>>>(out, right);
    else if (name == "uninitialised") uninitialised<<<1, 32>>>(out, right);
    else if (name == "unwritten") {
        cudaMalloc(&in, 32 * sizeof(int));
        if (right) cudaMemcpy(in, host, 32 * sizeof(int), cudaMemcpyHostToDevice);
        reads<<<1, 32>>>(out, in);
        cudaFree(in);
    } else if (name == "freed") {
        in = made(32);
        if (!right) cudaFree(in);
        reads<<<1, 32>>>(out, in);
        if (right) cudaFree(in);
    } else if (name == "twice") {
        in = made(32);
        if (!right) cudaFree(in);
        cudaFree(in);  // twice
    } else if (name == "leak") {
        in = made(32);
        if (right) cudaFree(in);
    } else if (name == "host-pointer") {
        reads<<<1, 32>>>(out, right ? out + 32 : host);
    } else if (name == "device-pointer") {
        if (right) cudaMemcpy(host, out, 4, cudaMemcpyDeviceToHost);
        else host[0] = out[0];  // device-pointer
    } else if (name == "direction") {
        cudaMemcpy(out, host, 4, right ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost);  // direction
    } else if (name == "too-much") {
        cudaMemcpy(host, out, (right ? 256 : 257) * sizeof(int), cudaMemcpyDeviceToHost);  // too-much
    } else if (name == "no-blocks") {
        fill<<<right ? 1 : 0, 32>>>(out);  // no-blocks
        check("fill");
    } else if (name == "unchecked") {
        fill<<<1, right ? 64 : 2048>>>(out);  // unchecked
        if (right) check("fill");
    } else if (name == "much-shared") {
        if (right) cudaFuncSetAttribute(fill, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10);
        fill<<<1, 32, 64 << 10>>>(out);  // much-shared
        check("fill");
    } else if (name == "other-gpu") {
        if (right) cudaDeviceEnablePeerAccess(1, 0);
        cudaSetDevice(1);
        int* there = made(32);
        cudaSetDevice(0);
        reads<<<1, 32>>>(out, there);
        cudaFree(there);
    } else if (name == "copied") {
        Row* rows;
        cudaMalloc(&rows, 64 * sizeof(Row));
        copied<<<1, 64>>>(rows, right);
        cudaFree(rows);
    } else if (name == "few-bytes") {
        few_bytes<<<1, 32>>>((char*)out, right);
    } else if (name == "constant") {
        constant<<<1, 64>>>(out, right);
    } else if (name == "spins") {
        spins<<<1, 64>>>(out, right);
    } else if (name == "endless") {
        endless<<<1, 1>>>(out, right ? 7 : 8);
    } else if (name == "slow") {
        for (int i = 0; i < (right ? 1 : 1000000); i++) much<<<64, 32>>>((float*)out, 1000);
    } else if (name == "turns") {
        turns<<<1, 32>>>(out, right);
        cudaMemcpy(host, out, 4, cudaMemcpyDeviceToHost);
        FILE* file = fopen("answer.bin", "wb");
        fwrite(host, 4, 1, file);
        fclose(file);
    } else if (name == "random") {
        timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        FILE* file = fopen("answer.bin", "wb");
        if (!right) fwrite(&now, sizeof now, 1, file);
        fclose(file);
    } else if (name == "host-store") {
        int* few = new int[2];
        fill<<<1, 32>>>(right ? out : few);
        delete[] few;
    } else if (name == "reads-input") {
        int number = 0;
        if (!right && scanf("%d", &number) != 1) puts("no number");
    } else if (name == "forks") {
        if (!right && fork() == 0) _exit(0);
    } else if (name == "outside") {
        FILE* file = fopen(right ? "inside.txt" : "/etc/hw4-was-here", "w");
        puts(file ? "written" : "refused");
        if (file) fclose(file);
    } else if (name == "crash") {
        if (!right) *(volatile int*)16 = 1;  // crash
    } else if (name == "exit") {
        if (!right) exit(3);
    } else if (name == "quick-exit") {
        quick_exit(right ? 0 : 3);
    }
    cudaFree(out);
    return 0;
}
