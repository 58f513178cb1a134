// What programs use of CUDA's language and library; the host compares each result with its own, and prints what differs.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <omp.h>
#include <thread>
#include <vector>

namespace cg = cooperative_groups;
using namespace nvcuda;

static int failures;
template <class A, class B> void expect(const char* what, A got, B wanted)
{
    if ((double)got == (double)wanted) return;
    printf("%s is %g, not %g\n", what, (double)got, (double)wanted);
    failures++;
}

__constant__ float table[4];
__device__ int counter;

__global__ void shuffles(double* d, int* i, bool* b, short* s, __half* h, unsigned* votes)
{
    const int lane = threadIdx.x;
    d[lane] = __shfl_xor_sync(0xffffffff, (double)lane, 1);
    i[lane] = __shfl_down_sync(0xffffffff, lane, 4, 8);
    b[lane] = __shfl_sync(0xffffffff, lane == 3, 3);
    s[lane] = __shfl_up_sync(0xffffffff, (short)lane, 1);
    h[lane] = __shfl_sync(0xffffffff, __float2half(lane), 5);
    votes[lane] = __ballot_sync(0xffffffff, lane % 2);
    if (lane < 4) votes[lane] += __activemask();
    votes[lane] += __match_any_sync(0xffffffff, lane / 8) + __reduce_add_sync(0xffffffff, 1u);
}

__global__ void groups(int* sums, int* ranks)
{
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    int x = block.thread_rank();
    for (int by = tile.size() / 2; by > 0; by /= 2) x += tile.shfl_down(x, by);
    __shared__ int first[64];
    if (tile.thread_rank() == 0) first[tile.meta_group_rank()] = x;
    block.sync();
    if (block.thread_rank() == 0) {
        int sum = 0;
        for (int t = 0; t < tile.meta_group_size(); t++) sum += first[t];
        sums[0] = sum;
    }
    const int all = cg::reduce(tile, 1, cg::plus<int>());
    if (threadIdx.x % 3 == 0) {
        cg::coalesced_group some = cg::coalesced_threads();
        ranks[threadIdx.x] = some.thread_rank() + 100 * some.size() + 10000 * all;
    }
}

__global__ void sixteen(const __half2* x, __half2* y, __nv_bfloat162* z)
{
    const __half2 twice = __hmul2(x[threadIdx.x], __float2half2_rn(2.0f));
    y[threadIdx.x] = __hfma2(twice, twice, __floats2half2_rn(1.0f, 3.0f));
    z[threadIdx.x] = __floats2bfloat162_rn(__low2float(twice), 1.00390625f);
}

__global__ void products(const __half* a, const __half* b, float* c)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> y;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 1.0f);
    wmma::load_matrix_sync(x, a, 16);
    wmma::load_matrix_sync(y, b, 16);
    wmma::mma_sync(sum, x, y, sum);
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] *= 2;
    wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}

__global__ void lists(int* out)
{
    int* mine = (int*)malloc(4 * sizeof(int));
    int* other = new int[2];
    for (int i = 0; i < 4; i++) mine[i] = threadIdx.x * i;
    other[0] = mine[3];
    out[threadIdx.x] = other[0];
    free(mine);
    delete[] other;
    if (threadIdx.x == 0) printf("a kernel prints %d\n", out[0] + 7);
}

__global__ void counts(float* out)
{
    atomicAdd(&counter, 1);
    const int i = blockIdx.z * gridDim.y + blockIdx.y, t = threadIdx.y * blockDim.x + threadIdx.x;
    out[i * blockDim.x * blockDim.y + t] = table[t % 4];
}

__global__ void ordered(int* words, double* third)
{
    int old = 2;
    const bool first = __nv_atomic_compare_exchange_n(words, &old, 9, false, __NV_ATOMIC_ACQ_REL, __NV_ATOMIC_ACQUIRE);
    const int added = __nv_atomic_fetch_add(words, 3, __NV_ATOMIC_SEQ_CST, __NV_THREAD_SCOPE_BLOCK);
    const int least = __nv_atomic_fetch_min(words, 10, __NV_ATOMIC_RELAXED);
    __nv_atomic_store_n(words + 1, 10 * old + first, __NV_ATOMIC_RELEASE);
    words[2] = __nv_atomic_load_n(words, __NV_ATOMIC_ACQUIRE) + 100 * added + 10000 * least;
    *third = __drcp_rn(3.0);
}

template <int N> __global__ void named(int* out) { out[threadIdx.x] = N; }
#define LAUNCH(kernel, n, ...) kernel<<<1, n>>>(__VA_ARGS__)

template <class T> std::vector<T> copied(const T* device, int n)
{
    std::vector<T> host(n);
    cudaMemcpy(host.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost);
    return host;
}

__global__ void twice(cudaPitchedPtr p, unsigned width)
{
    if (threadIdx.x < width && threadIdx.y < p.ysize)
        ((float*)((char*)p.ptr + (threadIdx.z * p.ysize + threadIdx.y) * p.pitch))[threadIdx.x] *= 2;
}
int main()
{
    double* d; int* i; bool* b; short* s; __half* h; unsigned* v;
    cudaMalloc(&d, 32 * 8); cudaMalloc(&i, 32 * 4); cudaMalloc((void**)&b, 32); cudaMalloc(&s, 64); cudaMalloc(&h, 64);
    cudaMalloc(&v, 128);
    shuffles<<<1, 32>>>(d, i, b, s, h, v);
    expect("xor", copied(d, 32)[6], 7);
    expect("down", copied(i, 32)[9], 13);
    expect("down past its width", copied(i, 32)[14], 14);
    expect("a bool", ((std::vector<char>)copied((char*)b, 32))[9], 1);
    expect("a short", copied(s, 32)[9], 8);
    expect("a half", __half2float(copied(h, 32)[9]), 5);
    expect("votes", copied(v, 32)[9], 0xaaaaaaaa + 0xff00u + 32);
    expect("votes of some", copied(v, 32)[2], 0xaaaaaaaa + 15 + 0xffu + 32);

    int *sums, *ranks;
    cudaMalloc(&sums, 4); cudaMalloc(&ranks, 64 * 4); cudaMemset(ranks, 0, 64 * 4);
    groups<<<1, 64>>>(sums, ranks);
    expect("a sum of tiles", copied(sums, 1)[0], 64 * 63 / 2);
    expect("a rank", copied(ranks, 64)[33], 81100);

    __half2 *x, *y; __nv_bfloat162* z;
    __half2 given[2] = {__floats2half2_rn(1.5f, -2.0f), __floats2half2_rn(0.5f, 100.0f)};
    cudaMalloc(&x, 8); cudaMalloc(&y, 8); cudaMalloc(&z, 8);
    cudaMemcpy(x, given, 8, cudaMemcpyHostToDevice);
    sixteen<<<1, 2>>>(x, y, z);
    expect("half2", __low2float(copied(y, 2)[0]), 10);
    expect("half2's upper part", __high2float(copied(y, 2)[0]), 19);
    expect("half2, rounded", __high2float(copied(y, 2)[1]), 40000);
    expect("bfloat162, rounded", __high2float(copied(z, 2)[0]), 1);

    std::vector<__half> a(256), e(256);
    for (int k = 0; k < 256; k++) a[k] = __float2half(k % 7), e[k] = __float2half(k % 5);
    __half *da, *de; float* c;
    cudaMalloc(&da, 512); cudaMalloc(&de, 512); cudaMalloc(&c, 1024);
    cudaMemcpy(da, a.data(), 512, cudaMemcpyHostToDevice); cudaMemcpy(de, e.data(), 512, cudaMemcpyHostToDevice);
    products<<<1, 32>>>(da, de, c);
    for (int row = 0; row < 16; row += 5)
        for (int column = 0; column < 16; column += 3) {
            float sum = 1;
            for (int k = 0; k < 16; k++) sum += __half2float(a[row * 16 + k]) * __half2float(e[column * 16 + k]);
            expect("a product of matrices", copied(c, 256)[row * 16 + column], 2 * sum);
        }

    int* out;
    cudaMalloc(&out, 64 * 4);
    lists<<<1, 64>>>(out);
    expect("memory of a kernel's own", copied(out, 64)[5], 15);

    const float constants[4] = {1, 2, 3, 4};
    int zero = 0, count;
    float* grid;
    cudaMemcpyToSymbol(table, constants, sizeof constants);
    cudaMemcpyToSymbol(counter, &zero, sizeof zero);
    cudaMalloc(&grid, 6 * 12 * 4);
    counts<<<dim3(1, 2, 3), dim3(3, 4)>>>(grid);
    cudaMemcpyFromSymbol(&count, counter, sizeof count);
    expect("a counter", count, 72);
    expect("a constant", copied(grid, 72)[71], 4);
    LAUNCH(named<42>, 8, out);
    expect("a template's argument", copied(out, 8)[7], 42);

    const int zeros[3] = {};
    cudaMemcpy(grid, zeros, sizeof zeros, cudaMemcpyHostToDevice);
    ordered<<<1, 1>>>((int*)grid, d);
    expect("a comparison that fails tells what is there", copied((int*)grid, 3)[1], 0);
    expect("atomic functions with an order", copied((int*)grid, 3)[2], 3 + 100 * 0 + 10000 * 3);
    expect("a reciprocal", copied(d, 1)[0], 1 / 3.0);
    int gpus;
    cudaGetDeviceCount(&gpus);
    std::vector<int> found(gpus);
    std::vector<std::thread> threads;
    for (int g = 0; g < gpus; g++)
        threads.emplace_back([&, g] {
            cudaSetDevice(g);
            int* mine;
            cudaMalloc(&mine, 32 * 4);
            for (int round = 0; round < 20; round++) named<9><<<1, 32>>>(mine);
            cudaMemcpy(&found[g], mine + 31, 4, cudaMemcpyDeviceToHost);
            cudaFree(mine);
        });
    for (auto& thread : threads) thread.join();
    for (int g = 0; g < gpus; g++) expect("a GPU's answer", found[g], 9);
    int sum = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(2)
    for (int k = 0; k < 10; k++) sum += k;
    expect("OpenMP's sum", sum, 45);

    float box[30], boxed[30];  // 5 by 3 by 2, in the GPU's memory with a pitch
    for (int k = 0; k < 30; k++) box[k] = (float)k;
    cudaPitchedPtr pitched;
    const cudaExtent extent = make_cudaExtent(5 * sizeof(float), 3, 2);
    cudaMalloc3D(&pitched, extent);
    cudaMemset3D(pitched, 0, extent);
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(box, 5 * sizeof(float), 5 * sizeof(float), 3), copy.dstPtr = pitched;
    copy.extent = extent, copy.kind = cudaMemcpyHostToDevice;
    cudaMemcpy3D(&copy);
    twice<<<1, dim3(8, 4, 2)>>>(pitched, 5);
    copy.srcPtr = pitched, copy.dstPtr = make_cudaPitchedPtr(boxed, 5 * sizeof(float), 5 * sizeof(float), 3);
    copy.kind = cudaMemcpyDeviceToHost;
    cudaMemcpy3D(&copy);
    expect("the last of a box", boxed[29], 58);
    expect("one of its second slice", boxed[16], 32);
    cudaFree(pitched.ptr);

    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, 0);
    cudaEvent_t begin, end;
    cudaEventCreate(&begin); cudaEventCreate(&end);
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    cudaEventRecord(begin, stream);
    named<1><<<1, 1, 0, stream>>>(out);
    cudaEventRecord(end, stream);
    cudaEventSynchronize(end);
    float ms = -1;
    cudaEventElapsedTime(&ms, begin, end);
    expect("a time is none", ms < 0, 0);
    printf("%s, compute capability %d.%d, %d multiprocessors\n", properties.name, properties.major, properties.minor,
           properties.multiProcessorCount);
    for (void* p : {(void*)d, (void*)i, (void*)b, (void*)s, (void*)h, (void*)v, (void*)sums, (void*)ranks, (void*)x, (void*)y,
                    (void*)z, (void*)da, (void*)de, (void*)c, (void*)out, (void*)grid})
        cudaFree(p);
    cudaStreamDestroy(stream);
    puts(failures ? "wrong" : "all right");
    return failures > 0;
}
