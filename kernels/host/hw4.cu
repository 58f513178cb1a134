// hw4 INPUTFILE OUTPUTFILE: the kernel flash in a plain program, as a homework hands it in.
//
// Read everything, copy it to the GPU, launch, copy back, write everything: no pinned memory, no streams, no
// overlap. It is what the Python program is measured against, and the shortest way to see how flash is launched.
// NaN and Inf are not looked for, and scores beyond float32 have no way out; `hw4` has both.
//
// Build: make hw4, or nvcc -O3 -std=c++17 -arch=native -o hw4 kernels/host/hw4.cu
// Exit status: 0 all right, 2 wrong usage or a bad file, 3 the machine cannot.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// flash's tile is fixed when it is compiled, and follows from the shared memory of the architecture, one a build:
// the table is what hw4cli/variants.py computes, and a test compares them.
#define ARCH __CUDA_ARCH_LIST__
#if ARCH >= 900 && ARCH < 1200  // 228 KB a multiprocessor
#define BC_32 32
#define BC_64 32
#define BLOCKS_32 3
#define BLOCKS_64 3
#elif ARCH == 800 || ARCH == 870  // 164 KB
#define BC_32 32
#define BC_64 32
#define BLOCKS_32 3
#define BLOCKS_64 2
#elif ARCH == 750  // 64 KB
#define BC_32 16
#define BC_64 32
#define BLOCKS_32 2
#define BLOCKS_64 1
#else  // 96 or 100 KB, of which a block has 48 KB at least
#define BC_32 32
#define BC_64 16
#define BLOCKS_32 2
#define BLOCKS_64 2
#endif
#define BR 128
#define THREADS BR

using Kernel = void(const float* q, const float* k, const float* v, float* o, void* scratch, long long in_stride,
                    long long out_stride, int B, int N, int splits, float scale);

struct Flash {  // flash, compiled for a head size
    Kernel *rows, *combine;
    int d, bc, blocks;  // columns, keys of a tile, blocks that a multiprocessor holds
    int shared_bytes() const { return 4 * (d * (2 * bc + BR) + BR * bc); }
};

// The same file twice: a namespace keeps its names apart, a macro those of the extern "C" kernels.
namespace head32 {
#define D 32
#define BC BC_32
#define BLOCKS BLOCKS_32
#define flash flash_32
#define flash_combine flash_combine_32
#include "../flash.cu"
const Flash compiled{flash, flash_combine, D, BC, BLOCKS};
#undef D
#undef BC
#undef BLOCKS
#undef flash
#undef flash_combine
}  // namespace head32

namespace head64 {
#define D 64
#define BC BC_64
#define BLOCKS BLOCKS_64
#define flash flash_64
#define flash_combine flash_combine_64
#include "../flash.cu"
const Flash compiled{flash, flash_combine, D, BC, BLOCKS};
#undef D
#undef BC
#undef BLOCKS
#undef flash
#undef flash_combine
}  // namespace head64

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

// Into how many parts flash cuts the keys: a part of more than 4096 would lose digits in its long sums, and no
// multiprocessor should idle; but a part has 8 tiles at least.
int parts(const Flash& kernel, int N, long long row_blocks) {
    int sms;
    check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "asking for the GPU's size");
    const int most = std::clamp((N + kernel.bc - 1) / kernel.bc / 8, 1, 8);
    const long long filling = sms * kernel.blocks / row_blocks, accurate = (N + 4095) / 4096;
    return (int)std::min<long long>(most, std::max({1ll, filling, accurate}));
}

// O of all batches, into the first third of the input's memory: a new piece would cost the time of its first touch.
void attention(const Input& input) {
    const Flash& kernel = input.d == 32 ? head32::compiled : head64::compiled;
    const size_t bytes = input.elements() * sizeof(float);
    const long long matrix = (long long)input.N * input.d, row_blocks = (long long)input.B * ((input.N + BR - 1) / BR);
    const int splits = parts(kernel, input.N, row_blocks);
    float *data, *o, *scratch = nullptr;
    check(cudaMalloc(&data, 3 * bytes), "making room on the GPU");
    check(cudaMalloc(&o, bytes), "making room on the GPU");
    if (splits > 1)  // each part's O, and two numbers a row
        check(cudaMalloc(&scratch, splits * (bytes + bytes / input.d * 2)), "making room on the GPU");
    check(cudaMemcpy(data, input.data, 3 * bytes, cudaMemcpyHostToDevice), "copying to the GPU");

    const auto launch = [&](Kernel* function, long long blocks, int shared) {
        check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "loading flash");
        function<<<(unsigned)blocks, THREADS, shared>>>(data, data + matrix, data + 2 * matrix, o, scratch, 3 * matrix,
                                                        matrix, input.B, input.N, splits, 1 / std::sqrt(input.d));
        check(cudaGetLastError(), "launching flash");
    };
    launch(kernel.rows, row_blocks * splits, kernel.shared_bytes());
    if (splits > 1) launch(kernel.combine, (input.elements() / 4 + THREADS - 1) / THREADS, 0);
    check(cudaMemcpy(input.data, o, bytes, cudaMemcpyDeviceToHost), "flash");
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
