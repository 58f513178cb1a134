// What a program that `hw4 export` writes does beside its kernel: from file to file, as plainly as it can be said.

#include <cmath>

#include "files.h"
#include "alone.h"

// O of all batches, which takes the place of Q, K and V in the memory of `input`. On the GPU rows have 32, 64 or 128 columns: those
// behind the first d are zeros, which add nothing to a score, and what belongs to them in O is left there.
void compute(const Input& input) {
    const int columns = input.d <= 32 ? 32 : input.d <= 64 ? 64 : 128;
    const size_t given = input.d * sizeof(float), stored = columns * sizeof(float);  // bytes of a row
    float *qkv = room_for(3 * input.rows() * columns), *o = room_for(input.rows() * columns);
    if (stored > given) check(cudaMemset(qkv, 0, 3 * input.rows() * stored), "making room on the GPU");
    check(cudaMemcpy2D(qkv, stored, input.data, given, given, 3 * input.rows(), cudaMemcpyHostToDevice), "copying to the GPU");

    const long long matrix = (long long)input.N * columns;
    Params p{};
    p.q = {qkv, 3 * matrix, 3 * matrix, columns};
    p.k = {qkv + matrix, 3 * matrix, 3 * matrix, columns};
    p.v = {qkv + 2 * matrix, 3 * matrix, 3 * matrix, columns};
    p.o = {o, matrix, matrix, columns};
    p.batches = input.B, p.heads = 1, p.Nq = p.Nk = input.N, p.splits = 1;
    p.scale = (float)(1 / std::sqrt((double)input.d));
    launch_for(columns, p, attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));

    check(cudaMemcpy2D(input.data, given, o, stored, given, input.rows(), cudaMemcpyDeviceToHost), "computing");
    check(cudaFree(qkv), "computing");
    check(cudaFree(o), "computing");
}

int main(int count, char** words) {
    if (count != 3) fail(BAD_FILE, "wrong usage: %s INPUTFILE OUTPUTFILE", words[0]);
    const Input input = read_input(words[1]);
    compute(input);
    write_output(words[2], input.data, input.elements());
    std::free(input.data);
    return 0;
}
