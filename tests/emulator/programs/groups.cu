// Cooperative groups: tiles of all sizes, lanes that a branch or a label has together, sums, scans and copies of a group.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cstdio>
namespace cg = cooperative_groups;

#define CHECK(what) do { if (!(what)) printf("not so: %s (line %d)\n", #what, __LINE__); } while (0)

struct Wide { double a, b, c; };

template <unsigned Size> __device__ void tiles_of(const cg::thread_block& block)
{
    const int t = (int)block.thread_rank(), first = t / (int)Size * (int)Size, rank = t - first;
    auto tile = cg::tiled_partition<Size>(block);
    CHECK(tile.size() == Size && tile.thread_rank() == rank && tile.meta_group_rank() == t / Size);
    CHECK(tile.meta_group_size() == block.size() / Size);
    CHECK(cg::reduce(tile, t, cg::plus<int>()) == (int)Size * first + (int)(Size * (Size - 1) / 2));
    CHECK(cg::reduce(tile, t, cg::greater<int>()) == first + (int)Size - 1);
    CHECK(cg::reduce(tile, t, cg::less<int>()) == first);
    CHECK(cg::inclusive_scan(tile, 2) == 2 * (rank + 1));
    CHECK(cg::exclusive_scan(tile, 2, cg::plus<int>()) == 2 * rank);
    CHECK(tile.shfl(t, 0) == first);
    CHECK(tile.shfl_down(t, 1) == (rank + 1 < (int)Size ? t + 1 : t));
    CHECK(tile.shfl_up(t, 1) == (rank ? t - 1 : t));
    CHECK(tile.shfl_xor(t, Size / 2) == first + (rank ^ (int)(Size / 2)));
    CHECK(tile.any(rank == 0) && tile.all(t >= 0) && tile.all(rank == 0) == (Size == 1));
    tile.sync();
}
__global__ void tiles(int* data)
{
    const cg::thread_block block = cg::this_thread_block();
    tiles_of<1>(block), tiles_of<4>(block), tiles_of<16>(block), tiles_of<32>(block), tiles_of<64>(block), tiles_of<128>(block);
    const int t = (int)block.thread_rank();
    const auto warp = cg::tiled_partition<32>(block);
    const auto quarter = cg::tiled_partition<8>(warp);
    CHECK(quarter.meta_group_size() == 4 && quarter.meta_group_rank() == t % 32 / 8);
    const Wide wide = warp.shfl(Wide{1.0 * t, 2.0 * t, 3.0 * t}, 5);
    CHECK(wide.c == 3.0 * (t / 32 * 32 + 5));
    // A sum of floats is rounded as by halves: one after the other, each 1 would be lost beside 2^24.
    CHECK(cg::reduce(warp, t % 32 ? 1.0f : 16777216.0f, cg::plus<float>()) == 16777216.0f + 30);
    CHECK(warp.match_any(t % 3) >> (t % 32) & 1);

    // Lanes with the same remainder, and those of a branch.
    const auto same = cg::labeled_partition(warp, t % 3);
    CHECK(same.size() == (t % 32 % 3 == 2 ? 10 : 11) || t >= 32);
    CHECK(cg::reduce(same, t % 3, cg::plus<int>()) == t % 3 * (int)same.size());
    CHECK(same.meta_group_size() == 3);
    const auto odd = cg::binary_partition(warp, t % 2);
    CHECK(odd.size() == 16 && odd.thread_rank() == t % 32 / 2 && odd.meta_group_rank() == t % 2);
    CHECK(cg::exclusive_scan(odd, 1) == t % 32 / 2);
    if (t % 4 == 1) {
        const auto some = cg::coalesced_threads();
        CHECK(some.size() == 8 && some.thread_rank() == t % 32 / 4 && some.shfl(t, 0) == t / 32 * 32 + 1);
        CHECK(cg::reduce(some, 1, cg::plus<int>()) == 8);
        const auto pair = cg::tiled_partition(some, 2);
        CHECK(pair.size() == 2 && pair.shfl(t, 1) == t / 8 * 8 + 5);
        if (some.thread_rank() == 0) atomicAdd(data, (int)some.size());
    }
    CHECK(cg::invoke_one_broadcast(warp, [&] { return t; }) == t / 32 * 32);
}
// Waits for what it uses: the copy of one tile, while that of the next goes on.
__global__ void copies(const int* from, int* to)
{
    __shared__ alignas(16) int first[64], second[64];
    const cg::thread_block block = cg::this_thread_block();
    cg::memcpy_async(block, first, from, sizeof first);
    cg::memcpy_async(block, second, from + 64, sizeof second);
#if defined(TOO_EARLY)
    cg::wait_prior<2>(block);
#else
    cg::wait_prior<1>(block);
#endif
    to[threadIdx.x] = first[63 - threadIdx.x];
    cg::wait(block);
    to[64 + threadIdx.x] = second[63 - threadIdx.x];
}
int main()
{
    int *data, *from, numbers[128], sum = 0;
    cudaMalloc(&data, sizeof numbers), cudaMalloc(&from, sizeof numbers);
    cudaMemset(data, 0, sizeof numbers);
    tiles<<<1, 128>>>(data);
    cudaMemcpy(&sum, data, sizeof sum, cudaMemcpyDeviceToHost);
    CHECK(sum == 32);
    for (int i = 0; i < 128; i++) numbers[i] = i;
    cudaMemcpy(from, numbers, sizeof numbers, cudaMemcpyHostToDevice);
    copies<<<1, 64>>>(from, data);
    cudaMemcpy(numbers, data, sizeof numbers, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 64; i++) CHECK(numbers[i] == 63 - i && numbers[64 + i] == 127 - i);
    cudaFree(data), cudaFree(from);
    return 0;
}
