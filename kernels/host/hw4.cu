// hw4 INPUTFILE OUTPUTFILE: the kernels split8, split and flash in a plain program, as a homework hands it in.
//
// Read everything, copy it to the GPU, launch, copy back, write everything: no pinned memory, no streams, no overlap. Kernels are
// for d = 32, 64 and 128; on the GPU, rows of another d get zero columns up to the next of these. It is what the Python program
// is measured against, and the shortest way to see how the kernels are launched.
// NaN and Inf are not looked for, and scores beyond float32 have no way out; `hw4` has both.
//
// Build: make hw4, or python3 -m hw4cli.plans.native build/native, which needs no package, and then
//        nvcc -O3 -std=c++17 -arch=native -Ibuild/native -o hw4 kernels/host/hw4.cu
//        For AMD's GPUs: make hw4-amd, which compiles the same text by hipcc (gpu.h has the names).
// Exit status: 0 all right, 2 wrong usage or a bad file, 3 the machine cannot.

#include <chrono>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "gpu.h"
#include "files.h"
#include "../params.cuh"
#include "../columns.cu"
#include "launches.cuh"
#include "kernels.cuh"

struct Arrays { float *data, *o; int columns; };  // on the GPU: the input, and O, in rows of so many columns

void launch(const void* kernel, void* params, long long blocks, long long threads, long long shared) {
    if (!blocks) return;
    check(allow_shared_memory(kernel, (int)shared), "loading a kernel");
    void* arguments[] = {params};
    check(cudaLaunchKernel(kernel, dim3((unsigned)blocks), dim3((unsigned)threads), arguments, shared, nullptr),
          "launching a kernel");
}

// Rows one after the other, of so many columns, to rows of another number of columns: zeros, or none of the last ones.
void copy_rows(const float* from, int given, float* to, int columns, size_t rows) {
    constexpr size_t MANY = 1 << 20;  // rows of a launch
    for (size_t first = 0; first < rows; first += MANY) {
        const int some = (int)std::min(MANY, rows - first), block_rows = PASS / columns;
        CopyParams p{};
        p.of[0].from = {(void*)(from + first * given), 0, 0, given, 1};
        p.of[0].to = {to + first * columns, 0, 0, columns, 1};
        p.of[0].heads = 1, p.of[0].rows = some, p.of[0].block_rows = block_rows;
        p.of[0].given = std::min(given, columns), p.of[0].columns = columns;
        p.of[0].blocks = (some - 1) / block_rows + 1;
        launch((const void*)columns32, &p, p.of[0].blocks, THREADS_OF_COPY, 0);
    }
}

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
    const long long columns = on_gpu.columns, matrix = input.N * columns;
    char* scratch;
    check(cudaMalloc(&scratch, std::max(l.bytes, 16ll)), "making room on the GPU");
    if (c.absmax_bytes) check(cudaMemset(scratch, 0, c.absmax_bytes), "making room on the GPU");
    const float* q = on_gpu.data;
    Params p{};
    p.q = {q, 3 * matrix, 3 * matrix, columns};
    p.k = {q + matrix, 3 * matrix, 3 * matrix, columns};
    p.v = {q + 2 * matrix, 3 * matrix, 3 * matrix, columns};
    p.o = {on_gpu.o, matrix, matrix, columns};
    p.scratch = scratch, p.absmax = (unsigned*)scratch, p.tiles = scratch + l.tiles;
    p.row_stats = (float2*)(scratch + l.row_stats), p.partial_o = (float*)(scratch + l.partial_o);
    p.batches = input.B, p.heads = 1, p.Nq = p.Nk = input.N, p.splits = (int)l.splits;
    p.scale = (float)(1 / std::sqrt((double)input.d));
    launch(kernels.convert, &p, l.convert, c.convert_threads, 0);
    launch(kernels.rows, &p, l.rows, c.threads, c.shared);
    launch(kernels.combine, &p, l.combine, c.combine_threads, 0);
    return scratch;
}

// Whether a kernel's error is proven to be small enough for what one on tensor cores found in the input (absmax.cuh): elements up
// to LARGEST; or, of Q and K, rows whose norms are small enough for split. flash's always is. Scores are divided by sqrt(d): of
// less columns than the kernel is for, the same norms make larger ones.
bool suffices(const Configuration& c, int d, const float (&found)[5]) {
    if (c.kernel == FLASH) return true;
    const auto [q, q_squares, k, k_squares, v] = found;
    const bool known = q_squares < SQUARES_BELOW && k_squares < SQUARES_BELOW;  // false for NaN, as all that follows
    const bool bounded = known && (double)q_squares * k_squares * c.d <= (double)c.squares * d;
    return v <= LARGEST && ((q <= LARGEST && k <= LARGEST) || bounded);
}

// O of all batches, into the first third of the input's memory: a new piece would cost the time of its first touch.
void attention(const Input& input) {
    const size_t bytes = input.elements() * sizeof(float);
    Arrays on_gpu;
    on_gpu.columns = columns_for(input.d);
    const size_t stored = input.rows() * on_gpu.columns * sizeof(float);
    float* packed;  // as the file has it
    check(cudaMalloc(&on_gpu.data, 3 * stored), "making room on the GPU");
    check(cudaMalloc(&on_gpu.o, stored), "making room on the GPU");
    if (stored == bytes) packed = on_gpu.data;
    else check(cudaMalloc(&packed, 3 * bytes), "making room on the GPU");
    check(cudaMemcpy(packed, input.data, 3 * bytes, cudaMemcpyHostToDevice), "copying to the GPU");
    if (stored != bytes) copy_rows(packed, input.d, on_gpu.data, on_gpu.columns, 3 * input.rows());
    size_t room, all;
    check(cudaMemGetInfo(&room, &all), "asking for the GPU's memory");
    float found[5] = {};  // suffices for all, until a kernel on tensor cores has read the input
    bool done = false;
    for (int n = next_for(0, input.N, input.d); !done; n = next_for(n + 1, input.N, input.d)) {
        const Configuration& c = CONFIGURATIONS[n];
        if (!suffices(c, input.d, found) || (c.kernel != FLASH && (size_t)launches_for(n, input).bytes >= room)) continue;
        char* scratch = compute(n, input, on_gpu);
        if (c.absmax_bytes) check(cudaMemcpy(found, scratch, sizeof found, cudaMemcpyDeviceToHost), "computing");
        check(cudaFree(scratch), "computing");
        done = suffices(c, input.d, found);
    }
    if (stored != bytes) copy_rows(on_gpu.o, on_gpu.columns, packed, input.d, input.rows());
    check(cudaMemcpy(input.data, stored == bytes ? on_gpu.o : packed, bytes, cudaMemcpyDeviceToHost), "computing");
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
