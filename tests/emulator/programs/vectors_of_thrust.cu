// Thrust with the host as its back end: its vectors lie in the GPU's memory, where kernels may touch them. With OVER, a kernel writes
// behind a vector's end.
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>
#include <cstdio>

#define CHECK(what) do { if (!(what)) printf("not so: %s (line %d)\n", #what, __LINE__); } while (0)
struct Square { __host__ __device__ int operator()(int x) const { return x * x; } };
__global__ void add_one(int* p, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
#if defined(OVER)
    if (i <= n) p[i] += 1;
#else
    if (i < n) p[i] += 1;
#endif
}
int main()
{
    thrust::host_vector<int> host(100);
    for (int i = 0; i < 100; i++) host[i] = (i * 37) % 100;
    thrust::device_vector<int> device = host, keys(100), found(100);
    thrust::sort(device.begin(), device.end());
    add_one<<<1, 128>>>(thrust::raw_pointer_cast(device.data()), 100);
    CHECK(device[0] == 1 && device[99] == 100);
    CHECK(thrust::reduce(device.begin(), device.end()) == 5050);
    CHECK(thrust::transform_reduce(device.begin(), device.end(), Square(), 0, thrust::plus<int>()) == 338350);
    thrust::sequence(keys.begin(), keys.end());
    thrust::sort_by_key(thrust::device, keys.begin(), keys.end(), device.begin(), thrust::greater<int>());
    CHECK(device[0] == 100);
    thrust::exclusive_scan(device.begin(), device.end(), found.begin());
    CHECK(found[99] == 5049);
    const auto pairs = thrust::make_zip_iterator(thrust::make_tuple(device.begin(), thrust::counting_iterator<int>(0)));
    CHECK(thrust::get<1>(pairs[7]) == 7);

    int *raw, sum;
    cudaMalloc(&raw, 100 * sizeof(int));
    thrust::device_ptr<int> wrapped(raw);
    thrust::fill(wrapped, wrapped + 100, 7);
    add_one<<<1, 128>>>(raw, 99);
    sum = thrust::reduce(thrust::cuda::par.on(0), wrapped, wrapped + 100);
    CHECK(sum == 8 * 99 + 7);
    cudaFree(raw);
    host = found;
    CHECK(host[1] == 100);
    return 0;
}
