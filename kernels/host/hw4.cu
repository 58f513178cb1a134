// hw4 INPUTFILE OUTPUTFILE: the kernels flash and split in a plain program, as a homework hands it in.
//
// Read everything, copy it to the GPU, launch, copy back, write everything: no pinned memory, no streams, no
// overlap. It is what the Python program is measured against, and the shortest way to see how the kernels are launched.
// NaN and Inf are not looked for, and scores beyond float32 have no way out; `hw4` has both.
//
// Build: make hw4, or nvcc -O3 -std=c++17 -arch=native -o hw4 kernels/host/hw4.cu
// Exit status: 0 all right, 2 wrong usage or a bad file, 3 the machine cannot.

#include <cerrno>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "launches.cuh"

using Kernel = void(const float* q, const float* k, const float* v, float* o, void* scratch, long long in_stride,
                    long long out_stride, int B, int N, int splits, float scale);

struct Compiled {  // a kernel, compiled for a head size and a tile
    Kernel *convert, *rows, *combine;  // what is launched: before, always, and if there are parts
    Tile tile;
    int d, threads, shared, converted;  // bytes a block; bytes for a key
};

// A tile is fixed when it is compiled, and follows from the shared memory of the architecture, one a build: the table is
// what hw4cli/compute/variants.py computes, and a test compares them.
#define TARGET __CUDA_ARCH_LIST__
#if TARGET >= 900 && TARGET < 1200  // 228 KB a multiprocessor
#define FLASH_BC_32 32
#define FLASH_BC_64 32
#define FLASH_BLOCKS_32 3
#define FLASH_BLOCKS_64 3
#elif TARGET == 800 || TARGET == 870  // 164 KB
#define FLASH_BC_32 32
#define FLASH_BC_64 32
#define FLASH_BLOCKS_32 3
#define FLASH_BLOCKS_64 2
#elif TARGET == 750  // 64 KB
#define FLASH_BC_32 16
#define FLASH_BC_64 32
#define FLASH_BLOCKS_32 2
#define FLASH_BLOCKS_64 1
#else  // 96 or 100 KB, of which a block has 48 KB at least
#define FLASH_BC_32 32
#define FLASH_BC_64 16
#define FLASH_BLOCKS_32 2
#define FLASH_BLOCKS_64 2
#endif
// Elsewhere split's error may be too large for d = 64, or tensor cores are no gain.
#define SPLIT (TARGET == 900 || TARGET == 1000)

#define NAME flash_32
#define FLASH 1
#define D 32
#define BR 128
#define BC FLASH_BC_32
#define THREADS 128
#define BLOCKS FLASH_BLOCKS_32
#include "compiled.cuh"

#define NAME flash_64
#define FLASH 1
#define D 64
#define BR 128
#define BC FLASH_BC_64
#define THREADS 128
#define BLOCKS FLASH_BLOCKS_64
#include "compiled.cuh"

#if SPLIT
constexpr int FEW_KEYS = 256;    // so many a block converts itself
constexpr int MANY_KEYS = 4096;  // for so many, blocks of 256 rows are the fastest at d = 64
// For |elements| and N up to these the error is proven to be below 4e-3 (docs/accuracy.md).
constexpr float LARGEST = 3;
constexpr int MOST_KEYS = 32768;

#define NAME split_32_few
#define D 32
#define BR 128
#define BC 64
#define THREADS 128
#define BLOCKS 3
#define STAGES 2
#define INBLOCK 1
#include "compiled.cuh"

#define NAME split_32
#define D 32
#define BR 128
#define BC 128
#define THREADS 128
#define BLOCKS 2
#define STAGES 4
#define INBLOCK 0
#include "compiled.cuh"

#define NAME split_64_few
#define D 64
#define BR 128
#define BC 64
#define THREADS 256
#define BLOCKS 2
#define STAGES 2
#define INBLOCK 1
#include "compiled.cuh"

#define NAME split_64
#define D 64
#define BR 128
#define BC 64
#define THREADS 128
#define BLOCKS 2
#define STAGES 4
#define INBLOCK 0
#include "compiled.cuh"

#define NAME split_64_many
#define D 64
#define BR 256
#define BC 128
#define THREADS 256
#define BLOCKS 1
#define STAGES 4
#define INBLOCK 0
#include "compiled.cuh"
#endif

enum Status { BAD_FILE = 2, MACHINE_CANNOT = 3 };

// Says what is wrong in one line on stderr, and ends the program.
template <class... Values>
[[noreturn]] void fail(Status status, const char* sentence, Values... values) {
    std::fputs("hw4: ", stderr);
    std::fprintf(stderr, sentence, values...);
    std::fputc('\n', stderr);
    std::exit(status);
}

void check(cudaError_t error, const char* doing) {
    if (error != cudaSuccess) fail(MACHINE_CANNOT, "%s failed: %s", doing, cudaGetErrorString(error));
}

struct Input {
    int B, N, d;
    float* data;  // Q, K, V of each batch
    size_t elements() const { return (size_t)B * N * d; }  // of Q, of K, of V and of O
};

Input read_input(const char* path) {
    std::FILE* file = std::fopen(path, "rb");
    if (!file) fail(BAD_FILE, "cannot read %s: %s", path, std::strerror(errno));
    int header[3];
    if (std::fread(header, sizeof header, 1, file) != 1)
        fail(BAD_FILE, "cannot read the header (B, N, d) of %s: %s", path,
             std::ferror(file) ? std::strerror(errno) : "the file is too short");
    const auto [B, N, d] = header;
    if (B < 1 || N < 1) fail(BAD_FILE, "%s: (B, N, d) = (%d, %d, %d), but B and N must be positive", path, B, N, d);
    if (d != 32 && d != 64) fail(BAD_FILE, "%s: d is %d, but this program computes only d = 32 and 64", path, d);
    std::fseek(file, 0, SEEK_END);
    const long long size = std::ftell(file), rows = (long long)B * N;
    if (rows > size || size != 12 + 12 * rows * d)  // the first keeps the second from overflowing
        fail(BAD_FILE, "%s has %lld bytes, but its header (B, N, d) = (%d, %d, %d) asks for 12 + 12*B*N*d", path,
             size, B, N, d);
    std::fseek(file, sizeof header, SEEK_SET);
    Input input{B, N, d, nullptr};
    input.data = (float*)std::malloc(3 * input.elements() * sizeof(float));
    if (!input.data) fail(MACHINE_CANNOT, "this machine has not enough memory for %s", path);
    if (std::fread(input.data, 3 * sizeof(float), input.elements(), file) != input.elements())
        fail(BAD_FILE, "cannot read %s to its end", path);
    std::fclose(file);
    return input;
}

int parts(const Compiled& kernel, const Input& input) {
    int sms;
    check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "asking for the GPU's size");
    return parts(kernel.tile, input.B, input.N, sms);
}

size_t scratch_bytes(const Compiled& kernel, const Input& input) {
    return scratch_bytes(kernel.tile, input.B, input.N, input.d, parts(kernel, input), kernel.converted);
}

struct Arrays { float *data, *o; };  // on the GPU: the input, and O

// O of all batches by one kernel. Returns the kernel's scratch.
char* compute(const Compiled& kernel, const Input& input, Arrays on_gpu) {
    const long long matrix = (long long)input.N * input.d;
    const int splits = parts(kernel, input);
    char* scratch;
    check(cudaMalloc(&scratch, scratch_bytes(kernel, input)), "making room on the GPU");
    check(cudaMemset(scratch, 0, RANGE_BYTES), "making room on the GPU");
    const auto launch = [&](Kernel* function, long long blocks, int threads, int shared) {
        check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "loading a kernel");
        const float *q = on_gpu.data, *k = q + matrix, *v = k + matrix;
        function<<<(unsigned)blocks, threads, shared>>>(q, k, v, on_gpu.o, scratch, 3 * matrix, matrix, input.B, input.N,
                                                        splits, 1 / std::sqrt(input.d));
        check(cudaGetLastError(), "launching a kernel");
    };
    const int B = input.B, N = input.N, d = input.d, threads = kernel.convert ? 256 : kernel.threads;
    if (kernel.convert) launch(kernel.convert, convert_blocks(kernel.tile, B, N, d, threads), threads, 0);
    launch(kernel.rows, row_blocks(kernel.tile, B, N) * splits, kernel.threads, kernel.shared);
    if (splits > 1) launch(kernel.combine, combine_blocks(B, N, d, threads), threads, 0);
    return scratch;
}

// O of all batches, into the first third of the input's memory: a new piece would cost the time of its first touch.
void attention(const Input& input) {
    const size_t bytes = input.elements() * sizeof(float);
    Arrays on_gpu;
    check(cudaMalloc(&on_gpu.data, 3 * bytes), "making room on the GPU");
    check(cudaMalloc(&on_gpu.o, bytes), "making room on the GPU");
    check(cudaMemcpy(on_gpu.data, input.data, 3 * bytes, cudaMemcpyHostToDevice), "copying to the GPU");
    bool done = false;
#if SPLIT
    const bool few = input.N <= FEW_KEYS, many = input.N >= MANY_KEYS;
    const Compiled& fast = input.d == 32 ? (few ? split_32_few::compiled : split_32::compiled)
                           : few         ? split_64_few::compiled
                           : many        ? split_64_many::compiled
                                         : split_64::compiled;
    size_t room, all;
    check(cudaMemGetInfo(&room, &all), "asking for the GPU's memory");
    if (input.N <= MOST_KEYS && scratch_bytes(fast, input) < room) {
        char* scratch = compute(fast, input, on_gpu);
        float found[3];
        check(cudaMemcpy(found, scratch, sizeof found, cudaMemcpyDeviceToHost), "split");
        check(cudaFree(scratch), "split");
        done = found[0] <= LARGEST && found[1] <= LARGEST && found[2] <= LARGEST;
    }
#endif
    if (!done) compute(input.d == 32 ? flash_32::compiled : flash_64::compiled, input, on_gpu);
    check(cudaMemcpy(input.data, on_gpu.o, bytes, cudaMemcpyDeviceToHost), "computing");
}

void write_output(const char* path, const float* o, size_t elements) {
    std::FILE* file = std::fopen(path, "wb");
    if (!file) fail(MACHINE_CANNOT, "cannot write %s: %s", path, std::strerror(errno));
    const bool written = std::fwrite(o, sizeof(float), elements, file) == elements;
    if (std::fclose(file) != 0 || !written) {
        const int error = errno;
        std::remove(path);
        fail(MACHINE_CANNOT, "cannot write %s: %s", path, std::strerror(error));
    }
}

int main(int count, char** words) {
    if (count != 3) fail(BAD_FILE, "wrong usage: %s INPUTFILE OUTPUTFILE", words[0]);
    const auto start = std::chrono::steady_clock::now();
    const Input input = read_input(words[1]);
    attention(input);
    write_output(words[2], input.data, input.elements());
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    std::printf("(B, N, d): (%d, %d, %d)\nTime: %.3f seconds\n", input.B, input.N, input.d, time.count());
    return 0;  // which frees all memory, here and on the GPU, at once
}
