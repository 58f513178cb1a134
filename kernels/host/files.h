// The assignment's files, and how a program ends that cannot go on: what `make hw4` and a program that `hw4 export` writes share.
// C++14.

#pragma once
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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
    size_t rows() const { return (size_t)B * N; }
    size_t elements() const { return rows() * d; }  // of Q, of K, of V and of O
};

Input read_input(const char* path) {
    std::FILE* file = std::fopen(path, "rb");
    if (!file) fail(BAD_FILE, "cannot read %s: %s", path, std::strerror(errno));
    int header[3];
    if (std::fread(header, sizeof header, 1, file) != 1)
        fail(BAD_FILE, "cannot read the header (B, N, d) of %s: %s", path,
             std::ferror(file) ? std::strerror(errno) : "the file is too short");
    const int B = header[0], N = header[1], d = header[2];
    if (B < 1 || N < 1) fail(BAD_FILE, "%s: (B, N, d) = (%d, %d, %d), but B and N must be positive", path, B, N, d);
    if (d < 1 || d > 128) fail(BAD_FILE, "%s: d is %d, but must be between 1 and 128", path, d);
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
