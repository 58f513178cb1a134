// CUB: what warps, blocks and the whole GPU do, against sums made one by one. With REUSED, a block's storage is used again
// without a barrier in between.
#include <cub/cub.cuh>
#include <cstdio>
#include <vector>

#define CHECK(what) do { if (!(what)) printf("not so: %s (line %d)\n", #what, __LINE__); } while (0)

constexpr int THREADS = 96, ITEMS = 4, N = THREADS * ITEMS;

struct Running {  // a prefix that goes on from one tile to the next
    int total;
    __device__ int operator()(int sum) { const int old = total; total += sum; return old; }
};
__global__ void blocks(const int* in, int* out)
{
    typedef cub::BlockReduce<int, THREADS> Reduce;
    typedef cub::BlockScan<int, THREADS, cub::BLOCK_SCAN_WARP_SCANS> Scan;
    typedef cub::BlockLoad<int, THREADS, ITEMS, cub::BLOCK_LOAD_TRANSPOSE> Load;
    typedef cub::BlockStore<int, THREADS, ITEMS, cub::BLOCK_STORE_WARP_TRANSPOSE> Store;
    typedef cub::BlockRadixSort<int, THREADS, ITEMS, int> Sort;
    __shared__ union { Reduce::TempStorage reduce; Scan::TempStorage scan; Load::TempStorage load; Store::TempStorage store;
                       Sort::TempStorage sort; } s;
    const int t = threadIdx.x;
    int items[ITEMS], sums[ITEMS], places[ITEMS], total;
    Load(s.load).Load(in, items);
    for (int i = 0; i < ITEMS; i++) CHECK(items[i] == in[t * ITEMS + i]);
    __syncthreads();
    const int sum = Reduce(s.reduce).Sum(t);
    if (t == 0) CHECK(sum == THREADS * (THREADS - 1) / 2);
#if !defined(REUSED)
    __syncthreads();
#endif
    const int most = Reduce(s.reduce).Reduce(t == 70 ? 1000 : t, cub::Max(), 80);
    if (t == 0) CHECK(most == 1000);
    __syncthreads();
    const int few = Reduce(s.reduce).Sum(1, 40);
    if (t == 0) CHECK(few == 40);
    __syncthreads();
    Scan(s.scan).ExclusiveSum(items, sums, total);
    int before = 0;
    for (int i = 0; i < t * ITEMS; i++) before += in[i];
    for (int i = 0; i < ITEMS; i++) { CHECK(sums[i] == before); before += in[t * ITEMS + i]; }
    __syncthreads();
    int one;
    Scan(s.scan).InclusiveScan(t, one, cub::Max(), total);
    CHECK(one == t && total == THREADS - 1);
    Running running{100};
    __syncthreads();
    Scan(s.scan).ExclusiveSum(2, one, running);
    CHECK(one == 100 + 2 * t && (t >= 32 || running.total == 100 + 2 * THREADS));
    __syncthreads();
    for (int i = 0; i < ITEMS; i++) places[i] = t * ITEMS + i;
    Sort(s.sort).Sort(items, places);
    for (int i = 0; i < ITEMS; i++) CHECK(items[i] == in[places[i]] && (!i || items[i] >= items[i - 1]));
    __syncthreads();
    Store(s.store).Store(out, items);
}
__global__ void warps()
{
    const int t = threadIdx.x, lane = t % 32;
    __shared__ cub::WarpReduce<int>::TempStorage reduce[2];
    __shared__ cub::WarpScan<int, 16>::TempStorage scan[4];
    const int sum = cub::WarpReduce<int>(reduce[t / 32]).Sum(lane);
    if (lane == 0) CHECK(sum == 496);
    const int head = cub::WarpReduce<int>(reduce[t / 32]).HeadSegmentedSum(1, lane % 10 == 0);
    if (lane % 10 == 0) CHECK(head == (lane == 30 ? 2 : 10));
    int own, all;
    cub::WarpScan<int, 16>(scan[t / 16]).InclusiveSum(2, own, all);
    CHECK(own == 2 * (t % 16 + 1) && all == 32);
    cub::WarpScan<int, 16>(scan[t / 16]).ExclusiveScan(t % 16, own, -1, cub::Max());
    CHECK(own == t % 16 - 1);
}
// Each is asked first how much storage it needs.
#define RUN(call)                                                                          \
    do {                                                                                   \
        void* storage = nullptr;                                                           \
        size_t bytes = 0;                                                                  \
        CHECK(call == cudaSuccess && bytes > 0);                                           \
        cudaMalloc(&storage, bytes);                                                       \
        CHECK(call == cudaSuccess);                                                        \
        cudaFree(storage);                                                                 \
    } while (0)
struct Odd { __host__ __device__ bool operator()(int x) const { return x % 2 != 0; } };
int main()
{
    std::vector<int> in(N), out(N), more(N);
    for (int i = 0; i < N; i++) in[i] = (i * 7919 + 13) % 101 - 50;
    int *a, *b, *c, *n;
    for (int** p : {&a, &b, &c}) cudaMalloc(p, N * sizeof(int));
    cudaMalloc(&n, sizeof(int));
    cudaMemcpy(a, in.data(), N * sizeof(int), cudaMemcpyHostToDevice);
    blocks<<<1, THREADS>>>(a, b);
    warps<<<1, 64>>>();
    std::vector<int> sorted = in;
    std::sort(sorted.begin(), sorted.end());
    auto back = [&](const int* p, size_t count = N) { cudaMemcpy(out.data(), p, count * sizeof(int), cudaMemcpyDeviceToHost); };
    back(b);
    CHECK(out == sorted);

    const int sum = std::accumulate(in.begin(), in.end(), 0);
    RUN(cub::DeviceReduce::Sum(storage, bytes, a, b, N));
    back(b, 1);
    CHECK(out[0] == sum);
    RUN(cub::DeviceReduce::Max(storage, bytes, a, b, N));
    back(b, 1);
    CHECK(out[0] == sorted.back());
    RUN(cub::DeviceScan::ExclusiveSum(storage, bytes, a, b, N));
    back(b);
    for (int i = 0, s = 0; i < N; s += in[i++]) CHECK(out[i] == s);
    RUN(cub::DeviceRadixSort::SortKeys(storage, bytes, a, b, N));
    back(b);
    CHECK(out == sorted);
    RUN(cub::DeviceRadixSort::SortPairsDescending(storage, bytes, a, b, a, c, N));
    back(c);
    std::reverse(sorted.begin(), sorted.end());
    CHECK(out == sorted);
    RUN(cub::DeviceSelect::If(storage, bytes, a, b, n, N, Odd()));
    int count;
    cudaMemcpy(&count, n, sizeof count, cudaMemcpyDeviceToHost);
    CHECK(count == std::count_if(in.begin(), in.end(), Odd()));
    RUN(cub::DeviceHistogram::HistogramEven(storage, bytes, a, b, 11, -50, 50, N));
    back(b, 10);
    for (int bin = 0; bin < 10; bin++)
        CHECK(out[bin] == std::count_if(in.begin(), in.end(), [=](int x) { return x >= bin * 10 - 50 && x < bin * 10 - 40; }));
    for (int* p : {a, b, c, n}) cudaFree(p);
    return 0;
}
