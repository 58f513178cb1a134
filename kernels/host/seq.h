// What the two sequential programs share: PROGRAM INPUTFILE OUTPUTFILE, and the file format of the assignment.
//
// An input is int32 B, N, d, then for each batch Q, K and V; an output is O of each batch. All are rows of d floats, as
// the machine has them (little-endian).
// Exit status: 0 all right, 2 wrong usage or a bad file, 3 the machine cannot.

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum Status { BAD_FILE = 2, MACHINE_CANNOT = 3 };

static const char* program;  // its name, in messages

// O of one batch: N rows of d floats each. A program defines it.
static void attention(const float* q, const float* k, const float* v, float* o, int N, int d);

// Says what is wrong in one line on stderr, and ends the program.
static void fail(enum Status status, const char* sentence, ...) {
    va_list values;
    fprintf(stderr, "%s: ", program);
    va_start(values, sentence);
    vfprintf(stderr, sentence, values);
    va_end(values);
    fputc('\n', stderr);
    exit(status);
}

// Memory for so many floats.
static float* floats(size_t count) {
    float* memory = count <= SIZE_MAX / sizeof(float) ? malloc(count * sizeof(float)) : NULL;
    if (!memory) fail(MACHINE_CANNOT, "this machine has not enough memory for %zu floats", count);
    return memory;
}

// All matrices of a file, batch after batch; B, N and d go to `size`.
static float* read_input(const char* path, int size[3]) {
    FILE* file = fopen(path, "rb");
    if (!file) fail(BAD_FILE, "cannot read %s: %s", path, strerror(errno));
    if (fread(size, sizeof(int), 3, file) != 3)
        fail(BAD_FILE, "cannot read the header (B, N, d) of %s: %s", path,
             ferror(file) ? strerror(errno) : "the file is too short");
    const int B = size[0], N = size[1], d = size[2];
    if (B < 1 || N < 1 || d < 1)
        fail(BAD_FILE, "%s: (B, N, d) = (%d, %d, %d), but all three must be positive", path, B, N, d);
    struct stat found;
    if (fstat(fileno(file), &found)) fail(BAD_FILE, "cannot read %s: %s", path, strerror(errno));
    const long long bytes = found.st_size, rows = (long long)B * N;
    if (rows > bytes / d || bytes != 12 + 12 * rows * d)  // the first keeps the second from overflowing
        fail(BAD_FILE, "%s has %lld bytes, but its header (B, N, d) = (%d, %d, %d) asks for 12 + 12*B*N*d", path, bytes, B,
             N, d);
    float* data = floats(3 * (size_t)rows * d);
    if (fread(data, 3 * sizeof(float) * d, rows, file) != (size_t)rows) fail(BAD_FILE, "cannot read %s to its end", path);
    fclose(file);
    return data;
}

static void write_output(const char* path, const float* o, size_t count) {
    FILE* file = fopen(path, "wb");
    if (!file) fail(MACHINE_CANNOT, "cannot write %s: %s", path, strerror(errno));
    const int written = fwrite(o, sizeof(float), count, file) == count;
    if (fclose(file) || !written) {
        const int error = errno;
        remove(path);
        fail(MACHINE_CANNOT, "cannot write %s: %s", path, strerror(error));
    }
}

static int same_file(const char* a, const char* b) {
    struct stat first, second;
    return !stat(a, &first) && !stat(b, &second) && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

int main(int count, char** words) {
    program = strrchr(words[0], '/') ? strrchr(words[0], '/') + 1 : words[0];
    if (count != 3) fail(BAD_FILE, "wrong usage: %s INPUTFILE OUTPUTFILE", program);
    if (same_file(words[1], words[2])) fail(BAD_FILE, "%s is the input: give another OUTPUTFILE", words[2]);
    int size[3];
    float* data = read_input(words[1], size);
    const int B = size[0], N = size[1], d = size[2];
    const size_t matrix = (size_t)N * d;
    float* o = floats(B * matrix);
    const clock_t start = clock();
    for (int b = 0; b < B; b++) {
        const float* q = data + 3 * b * matrix;
        attention(q, q + matrix, q + 2 * matrix, o + b * matrix, N, d);
    }
    const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    write_output(words[2], o, B * matrix);
    printf("(B, N, d): (%d, %d, %d)\nTime: %.3f seconds\n", B, N, d, seconds);
    return 0;
}
