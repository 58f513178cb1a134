// What threads may rely on of each other, by fences, scopes and volatile words: `orders NAME`, and `orders NAME right` for
// the same done rightly. A comment names each line that a finding must name. Two blocks of 64 threads.
#include <cstdio>
#include <cstring>
#include <cuda/atomic>
#include <cuda_runtime.h>

__device__ int flag, lock_word, counted;

// A message: data, and a word that says that it is there.
__global__ void message(volatile int* done, int* data, int* out, bool right)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        data[0] = 42;  // message
        if (right) __threadfence();
        done[0] = 1;  // message
    } else {
        while (!done[0]) {}  // message
        __threadfence();
        out[0] = data[0];  // message
    }
}
__global__ void unfenced_reader(volatile int* done, int* data, int* out, bool right)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        data[0] = 42;  // reader
        __threadfence();
        done[0] = 1;
    } else {
        while (!done[0]) {}  // reader
        if (right) __threadfence();
        out[0] = data[0];  // reader
    }
}
__global__ void block_fence(volatile int* done, int* data, int* out, bool right)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        data[0] = 42;  // block-fence
        if (right) __threadfence();
        else __threadfence_block();
        done[0] = 1;  // block-fence
    } else {
        while (!done[0]) {}
        __threadfence();
        out[0] = data[0];  // block-fence
    }
}
// The same from warp to warp, where a fence of the block is enough.
__global__ void warps(volatile int* done, int* data, int* out, bool right)
{
    if (blockIdx.x) return;
    if (threadIdx.x == 0) {
        data[0] = 42;  // warps
        if (right) __threadfence_block();
        done[0] = 1;  // warps
    } else if (threadIdx.x == 32) {
        while (!done[0]) {}
        __threadfence_block();
        out[0] = data[0];  // warps
    }
}
__global__ void block_atomic(int* sum, bool right)
{
    if (right) atomicAdd(sum, 1);
    else atomicAdd_block(sum, 1);  // block-atomic
}
// Data, by volatile accesses alone.
__global__ void volatile_data(volatile int* data, int* out, bool right)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        data[0] = 42;  // volatile-data
        if (right) __threadfence(), atomicExch(&flag, 1);
    } else {
        if (right) while (atomicAdd(&flag, 0) == 0) {}
        out[0] = data[0];  // volatile-data
    }
}
__global__ void volatile_writes(volatile int* data, bool right)
{
    if (threadIdx.x == 0 && (!right || blockIdx.x == 0)) data[0] = 5 + blockIdx.x;  // volatile-writes
}
__global__ void volatile_and_plain(int* data, bool right)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) *(volatile int*)data = 5;  // volatile-plain
    else if (!right) data[0] = 7;  // volatile-plain
}
// A word by which two blocks go on in turns: who writes it has read what the other wrote.
__global__ void in_turns(volatile int* turn, int* data, bool right)
{
    if (threadIdx.x) return;
    for (int round = 0; round < 4; round++) {
        while (turn[0] % 2 != blockIdx.x) {}
        __threadfence();
        data[0] += 1 + blockIdx.x;  // in-turns
        if (right) __threadfence();
        turn[0] = 2 * round + blockIdx.x + 1;  // in-turns
    }
}
// A lock.
__global__ void lock_taken(int* data, bool right)
{
    if (threadIdx.x) return;
    while (atomicCAS(&lock_word, 0, 1) != 0) {}  // lock-taken
    if (right || blockIdx.x) __threadfence();
    *(volatile int*)data = 5 + blockIdx.x;  // lock-taken
    __threadfence();
    atomicExch(&lock_word, 0);
}
__global__ void lock_given(int* data, bool right)
{
    if (threadIdx.x) return;
    while (atomicCAS(&lock_word, 0, 1) != 0) {}
    __threadfence();
    data[0] += 5;  // lock-given
    if (right) __threadfence();
    atomicExch(&lock_word, 0);  // lock-given
}
// The block that comes last adds up, and sets the counter back for the next launch.
__global__ void last_block(int* data, int* out, bool right)
{
    __shared__ bool last;
    data[blockIdx.x * 64 + threadIdx.x] = threadIdx.x;  // last-block
    if (right) __threadfence();
    else __threadfence_block();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(&counted, 1) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    out[threadIdx.x] = data[threadIdx.x] + data[64 + threadIdx.x];  // last-block
    if (threadIdx.x == 0) counted = 0;
}
// cuda::atomic_ref, with an order of its own in place of fences.
__global__ void referred(int* word, int* data, int* out, bool right)
{
    if (threadIdx.x) return;
    cuda::atomic_ref<int, cuda::thread_scope_device> done(*word);
    cuda::atomic_ref<int, cuda::thread_scope_block> narrow(*word);
    if (blockIdx.x == 0) {
        data[0] = 42;  // referred
        done.store(1, right ? cuda::memory_order_release : cuda::memory_order_relaxed);  // referred
    } else {
        while (!done.load(cuda::memory_order_acquire)) {}
        out[0] = data[0];  // referred
    }
}
__global__ void narrow(int* word, bool right)
{
    if (right) cuda::atomic_ref<int, cuda::thread_scope_device>(*word).fetch_add(1, cuda::memory_order_relaxed);
    else cuda::atomic_ref<int, cuda::thread_scope_block>(*word).fetch_add(1, cuda::memory_order_relaxed);  // narrow
}
// The compiler's own atomic functions, with an order and a scope each.
__global__ void builtin(int* word, int* data, int* out, bool right)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        data[0] = 42;  // builtin
        __nv_atomic_store_n(word, 1, right ? __NV_ATOMIC_RELEASE : __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE);  // builtin
    } else {
        while (!__nv_atomic_load_n(word, __NV_ATOMIC_ACQUIRE)) {}
        out[0] = data[0];  // builtin
    }
}
__global__ void builtin_narrow(int* word, bool right)
{
    __nv_atomic_fetch_add(word, 1, __NV_ATOMIC_RELAXED,  // builtin-narrow
                          right ? __NV_THREAD_SCOPE_DEVICE : __NV_THREAD_SCOPE_BLOCK);
}

int main(int, char** words)
{
    const bool right = words[2] != nullptr;
    int *done, *data, *out;
    cudaMalloc(&done, 4), cudaMalloc(&data, 512), cudaMalloc(&out, 256);
    cudaMemset(done, 0, 4), cudaMemset(data, 0, 512), cudaMemset(out, 0, 256);
    const auto is = [&](const char* name) { return !strcmp(words[1], name); };
    if (is("message")) message<<<2, 64>>>(done, data, out, right);
    if (is("reader")) unfenced_reader<<<2, 64>>>(done, data, out, right);
    if (is("block-fence")) block_fence<<<2, 64>>>(done, data, out, right);
    if (is("warps")) warps<<<2, 64>>>(done, data, out, right);
    if (is("block-atomic")) block_atomic<<<2, 64>>>(data, right);
    if (is("volatile-data")) volatile_data<<<2, 64>>>(data, out, right);
    if (is("volatile-writes")) volatile_writes<<<2, 64>>>(data, right);
    if (is("volatile-plain")) volatile_and_plain<<<2, 64>>>(data, right);
    if (is("in-turns")) in_turns<<<2, 64>>>(done, data, right);
    if (is("lock-taken")) lock_taken<<<2, 64>>>(data, right);
    if (is("lock-given")) lock_given<<<2, 64>>>(data, right);
    if (is("last-block")) last_block<<<2, 64>>>(data, out, right), last_block<<<2, 64>>>(data, out, right);
    if (is("referred")) referred<<<2, 64>>>(done, data, out, right);
    if (is("builtin")) builtin<<<2, 64>>>(done, data, out, right);
    if (is("builtin-narrow")) builtin_narrow<<<2, 64>>>(done, right);
    if (is("narrow")) narrow<<<2, 64>>>(done, right);
    cudaMemcpy(data, out, 4, cudaMemcpyDeviceToDevice);
    cudaFree(done), cudaFree(data), cudaFree(out);
}
