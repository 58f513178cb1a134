"""Solutions of the homework that have nothing in common but the task, for the host's compiler; and disguises of copies.

Each is written as another student would: another order of work, another style, other ways to read and write."""

import random
import re

# All scores of a batch at once, functions of matrices, C++ streams.
MATRICES = """\
#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <vector>

using Matrix = std::vector<float>;

// S = Q K^T / sqrt(d)
static Matrix scores(const Matrix &q, const Matrix &k, int rows, int width) {
    Matrix s(size_t(rows) * rows);
    const float factor = 1.0f / std::sqrt(static_cast<float>(width));
    for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < rows; ++j) {
            s[size_t(i) * rows + j] =
                factor * std::inner_product(&q[size_t(i) * width], &q[size_t(i) * width] + width,
                                            &k[size_t(j) * width], 0.0f);
        }
    }
    return s;
}

// P: each row of S as shares of its sum
static void normalize(Matrix &s, int rows) {
    for (auto row = s.begin(); row != s.end(); row += rows) {
        const float top = *std::max_element(row, row + rows);
        std::transform(row, row + rows, row, [top](float x) { return std::exp(x - top); });
        const float total = std::accumulate(row, row + rows, 0.0f);
        std::for_each(row, row + rows, [total](float &x) { x /= total; });
    }
}

// O = P V
static Matrix product(const Matrix &p, const Matrix &v, int rows, int width) {
    Matrix o(size_t(rows) * width, 0.0f);
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < rows; ++j)
            for (int c = 0; c < width; ++c)
                o[size_t(i) * width + c] += p[size_t(i) * rows + j] * v[size_t(j) * width + c];
    return o;
}

static Matrix take(std::ifstream &from, size_t count) {
    Matrix m(count);
    from.read(reinterpret_cast<char *>(m.data()), std::streamsize(count * sizeof(float)));
    return m;
}

int main(int argc, char *argv[]) {
    if (argc != 3) return 64;
    std::ifstream source(argv[1], std::ios::binary);
    std::ofstream target(argv[2], std::ios::binary);
    int head[3];
    if (!source.read(reinterpret_cast<char *>(head), sizeof head)) return 65;
    const int batches = head[0], rows = head[1], width = head[2];
    for (int batch = 0; batch < batches; ++batch) {
        const Matrix q = take(source, size_t(rows) * width), k = take(source, size_t(rows) * width);
        const Matrix v = take(source, size_t(rows) * width);
        Matrix p = scores(q, k, rows, width);
        normalize(p, rows);
        const Matrix o = product(p, v, rows, width);
        target.write(reinterpret_cast<const char *>(o.data()), std::streamsize(o.size() * sizeof(float)));
    }
    return target ? 0 : 66;
}
"""

# A pass over the keys for each query, the softmax online, everything in one mapped file and one class.
STREAMED = """\
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct Shape { int32_t B, N, d; };

class Query {
public:
    Query(const float *values, int d) : values_(values), d_(d), acc_((float *)calloc(d, sizeof(float))) {}
    ~Query() { free(acc_); }

    void see(const float *key, const float *value) {
        float x = 0;
        int c = d_;
        while (c--) x = fmaf(values_[c], key[c], x);
        x *= 1 / sqrtf(d_);
        if (x > m_) {
            float shrink = expf(m_ - x);
            m_ = x;
            l_ *= shrink;
            for (c = 0; c != d_; c++) acc_[c] *= shrink;
        }
        float weight = expf(x - m_);
        l_ += weight;
        for (c = 0; c != d_; c++) acc_[c] = fmaf(weight, value[c], acc_[c]);
    }

    void put(float *where) const {
        for (int c = 0; c != d_; c++) where[c] = acc_[c] / l_;
    }

private:
    const float *values_;
    int d_;
    float *acc_, m_ = -INFINITY, l_ = 0;
};

int main(int argc, char **argv) {
    int in = open(argv[argc > 1], O_RDONLY), out = -1;
    struct stat info;
    if (in < 0 || fstat(in, &info)) return 1;
    char *data = (char *)mmap(NULL, info.st_size, PROT_READ, MAP_PRIVATE, in, 0);
    Shape *shape = (Shape *)data;
    const float *next = (float *)(shape + 1);
    size_t matrix = (size_t)shape->N * shape->d, bytes = matrix * shape->B * sizeof(float);
    float *results = (float *)malloc(bytes);
    for (int b = 0; b != shape->B; b++, next += 3 * matrix) {
        for (int n = 0; n != shape->N; n++) {
            Query query(next + (size_t)n * shape->d, shape->d);
            for (int k = 0; k != shape->N; k++)
                query.see(next + matrix + (size_t)k * shape->d, next + 2 * matrix + (size_t)k * shape->d);
            query.put(results + b * matrix + (size_t)n * shape->d);
        }
    }
    out = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    for (size_t done = 0; done < bytes;) {
        ssize_t wrote = write(out, (char *)results + done, bytes - done);
        if (wrote <= 0) return 2;
        done += wrote;
    }
    return close(out);
}
"""

WORD = re.compile(r'"(?:[^"\\\n]|\\.)*"|^\s*#[^\n]*|(?<!\w)[A-Za-z_]\w*', re.MULTILINE)
# What a copyist cannot rename: the language's words and the libraries' names in these programs.
WORDS = """
    argc argv auto begin calloc char class close const data double else end exp expf float fmaf fopen for_each fread
    free fstat fwrite if ifstream ofstream inner_product int int32_t ios binary main malloc max_element mmap open
    private
    public read reinterpret_cast return size size_t sizeof sqrt sqrtf ssize_t st_size stat static static_cast std
    streamsize struct transform accumulate tuple using vector void while for write fmax fclose printf FILE O_RDONLY
    O_WRONLY O_CREAT O_TRUNC PROT_READ MAP_PRIVATE NULL INFINITY"""
FIXED = set(WORDS.split())


def renamed(text, seed=1):
    """The same program, with other names for all that its author named."""
    names: dict[str, str] = {}

    def other(found):
        word = found.group()
        if word in FIXED or word.strip()[0] in '"#':
            return word
        return names.setdefault(word, f"{'abcdefgh'[len(names) % 8]}{seed}{len(names)}")

    return WORD.sub(other, text)


def functions(text):
    """A program's parts: what ends at a } or ; of its outermost level."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if depth == 0 and letter in "};" and text[place + 1 : place + 2] == "\n":
            parts.append(text[start : place + 1])
            start = place + 1
    return [*parts, text[start:]]


def reordered(text, seed=1):
    """The same parts in another order."""
    parts = functions(text)
    random.Random(seed).shuffle(parts)
    return "\n".join(parts)


def commented(text):
    """The same program with other comments, in another format, and other numbers."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r";\n", ";  /* my own idea, 自己寫的 */\n\n", text).replace("    ", "\t").replace(" {\n", "\n{\n")
    return re.sub(r"\b6([456])\b", r"7\1", text)


def padded(text, every=6):
    """The same program with statements between its own that do nothing."""
    lines, count = [], 0
    for line in text.split("\n"):
        lines.append(line)
        if (
            line.startswith("  ")
            and line.endswith(";")
            and not line.lstrip().startswith(("return", "for", "factor", "&"))
        ):
            count += 1
            if count % every == 0:
                lines.append(f"    int unused{count} = {count};")
    return "\n".join(lines)
