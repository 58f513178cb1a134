// hw4 INPUTFILE OUTPUTFILE: the kernels split8, split and flash in a plain program, as a homework hands it in.
//
// Read everything, copy it to the GPU, launch, copy back, write everything: no pinned memory, no streams, no
// overlap. It is what the Python program is measured against, and the shortest way to see how the kernels are launched.
// NaN and Inf are not looked for, and scores beyond float32 have no way out; `hw4` has both.
//
// Build: make hw4, or python3 -m hw4cli.compute.native build/native, which needs no package, and then
//        nvcc -O3 -std=c++17 -arch=native -Ibuild/native -o hw4 kernels/host/hw4.cu
//        For AMD's GPUs: make hw4-amd, which compiles the same text by hipcc (gpu.h has the names).
// Exit status: 0 all right, 2 wrong usage or a bad file, 3 the machine cannot.

#include <cerrno>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gpu.h"
#include "../params.cuh"
#include "launches.cuh"
#include "kernels.cuh"

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

struct Arrays { float *data, *o; };  // on the GPU: the input, and O

Launches launches_for(int configuration, const Input& input) {
    int sms;
    check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "asking for the GPU's size");
    return launches(CONFIGURATIONS[configuration], input.B, input.N, sms);
}

// O of all batches by one kernel. Returns its scratch memory.
char* compute(int configuration, const Input& input, Arrays on_gpu) {
    const Configuration& c = CONFIGURATIONS[configuration];
    const Kernels& kernels = KERNELS[configuration];
    const Launches l = launches_for(configuration, input);
    const long long matrix = (long long)input.N * input.d;
    char* scratch;
    check(cudaMalloc(&scratch, max(l.bytes, 16ll)), "making room on the GPU");
    if (c.absmax_bytes) check(cudaMemset(scratch, 0, c.absmax_bytes), "making room on the GPU");
    const float* q = on_gpu.data;
    Params p{};
    p.q = {q, 3 * matrix, 3 * matrix, input.d};
    p.k = {q + matrix, 3 * matrix, 3 * matrix, input.d};
    p.v = {q + 2 * matrix, 3 * matrix, 3 * matrix, input.d};
    p.o = {on_gpu.o, matrix, matrix, input.d};
    p.scratch = scratch, p.absmax = (unsigned*)scratch, p.tiles = scratch + l.tiles;
    p.row_stats = (float2*)(scratch + l.row_stats), p.partial_o = (float*)(scratch + l.partial_o);
    p.batches = input.B, p.heads = 1, p.Nq = p.Nk = input.N, p.splits = (int)l.splits;
    p.scale = (float)(1 / std::sqrt((double)input.d));
    const auto launch = [&](const void* kernel, long long blocks, long long threads, long long shared) {
        if (!blocks) return;
        check(allow_shared_memory(kernel, (int)shared), "loading a kernel");
        void* arguments[] = {&p};
        check(cudaLaunchKernel(kernel, dim3((unsigned)blocks), dim3((unsigned)threads), arguments, shared, nullptr),
              "launching a kernel");
    };
    launch(kernels.convert, l.convert, c.convert_threads, 0);
    launch(kernels.rows, l.rows, c.threads, c.shared);
    launch(kernels.combine, l.combine, c.combine_threads, 0);
    return scratch;
}

// Whether a kernel's error is proven to be small enough for what one on tensor cores found in the input (absmax.cuh): elements up
// to LARGEST; or, of Q and K, rows whose norms are small enough for split. flash's always is.
bool suffices(const Configuration& c, const float (&found)[5]) {
    if (c.kernel == FLASH) return true;
    const auto [q, q_squares, k, k_squares, v] = found;
    const bool known = q_squares < SQUARES_BELOW && k_squares < SQUARES_BELOW;  // false for NaN, as all that follows
    return v <= LARGEST && ((q <= LARGEST && k <= LARGEST) || (known && (double)q_squares * k_squares <= c.squares));
}

// O of all batches, into the first third of the input's memory: a new piece would cost the time of its first touch.
void attention(const Input& input) {
    const size_t bytes = input.elements() * sizeof(float);
    Arrays on_gpu;
    check(cudaMalloc(&on_gpu.data, 3 * bytes), "making room on the GPU");
    check(cudaMalloc(&on_gpu.o, bytes), "making room on the GPU");
    check(cudaMemcpy(on_gpu.data, input.data, 3 * bytes, cudaMemcpyHostToDevice), "copying to the GPU");
    size_t room, all;
    check(cudaMemGetInfo(&room, &all), "asking for the GPU's memory");
    float found[5] = {};  // suffices for all, until a kernel on tensor cores has read the input
    bool done = false;
    for (int n = next_for(0, input.N, input.d); !done; n = next_for(n + 1, input.N, input.d)) {
        const Configuration& c = CONFIGURATIONS[n];
        if (!suffices(c, found) || (c.kernel != FLASH && (size_t)launches_for(n, input).bytes >= room)) continue;
        char* scratch = compute(n, input, on_gpu);
        if (c.absmax_bytes) check(cudaMemcpy(found, scratch, sizeof found, cudaMemcpyDeviceToHost), "computing");
        check(cudaFree(scratch), "computing");
        done = suffices(c, found);
    }
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
    for (int n = 1; n < count; n++)
        if (!std::strcmp(words[n], "--causal"))
            fail(BAD_FILE, "%s", "this program computes attention without a mask: the Python program hw4 has --causal");
    if (count != 3) fail(BAD_FILE, "wrong usage: %s INPUTFILE OUTPUTFILE", words[0]);
    const auto start = std::chrono::steady_clock::now();
    const Input input = read_input(words[1]);
    attention(input);
    write_output(words[2], input.data, input.elements());
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    std::printf("(B, N, d): (%d, %d, %d)\nTime: %.3f seconds\n", input.B, input.N, input.d, time.count());
    return 0;  // which frees all memory, here and on the GPU, at once
}
