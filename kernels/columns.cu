// columns: copies of matrices that give their rows zero columns, or take these away.
//
// Kernels load and store 16 bytes at once, so their rows are a multiple of 4 columns of 32 bits, or of 8 of 16 bits. Of another
// head size, Q, K and V are copied to rows of the next multiple before, and the columns of O that there are behind. Zero columns
// add nothing to a score, and what belongs to them in O is left there.
// Geometry: for each matrix and head, a block for so many rows as have at most PASS elements; all matrices of a launch side by
//           side. A block's threads go through its rows 4 bytes after 4 bytes, EACH of them at once: one element of 32 bits, or
//           two of 16. So both sides are read and written by whole warps, whatever the strides.
// Shared:   none.
// Limits:   any strides, of elements that lie where their type may lie; of 16 bits, the rows of the side with more columns (of
//           two with as many, of the one that is read) are whole 4 bytes, one element beside the other.

constexpr int MOST = 5;  // matrices of a launch; hw4cli/plans/columns.py has these numbers, too
constexpr int THREADS_OF_COPY = 256, EACH = 8, PASS = 4096;

struct CopySide {
    void* data;
    long long batch, head, row, column;  // strides, in elements
};

struct CopiedMatrix {
    CopySide from, to;
    long long blocks;             // in all heads
    int heads, rows, block_rows;  // of a batch, of a head, of a block
    int given, columns;           // of a row that is read, and of one that is written: what is missing is zero
};

struct CopyParams {
    CopiedMatrix of[MOST];  // those after the last have no blocks
};

// Of elements of 16 bits, WIDENS says which side has rows of whole 4 bytes: the one that is written, or the one that is read.
template <class Element, bool WIDENS> __device__ inline void copy_columns(const CopyParams& p)
{
    constexpr int TOGETHER = 4 / sizeof(Element);
    long long block = blockIdx.x;
    int n = 0;
    while (block >= p.of[n].blocks) block -= p.of[n++].blocks;
    const CopiedMatrix& m = p.of[n];
    const int chunks = (m.rows - 1) / m.block_rows + 1, columns = m.columns, given = m.given;
    const long long matrix = block / chunks, batch = matrix / m.heads, head = matrix % m.heads;
    const int first = int(block % chunks) * m.block_rows, rows = min(m.block_rows, m.rows - first);
    const int units = (columns - 1) / TOGETHER + 1;  // of a row
    int row = threadIdx.x / units, column = threadIdx.x % units * TOGETHER;
    auto place = [=](const CopySide& side) {
        return (Element*)side.data + batch * side.batch + head * side.head + (first + row) * side.row + column * side.column;
    };
    const Element* from = place(m.from);
    Element* to = place(m.to);
    // From a unit of a thread to its next one: without a division, and with no product.
    const int step_rows = THREADS_OF_COPY / units, step_columns = THREADS_OF_COPY % units * TOGETHER, end = units * TOGETHER;
    auto step = [=](const CopySide& side) { return step_rows * side.row + step_columns * side.column; };
    auto wrap = [=](const CopySide& side) { return side.row - end * side.column; };
    const long long from_step = step(m.from), from_wrap = wrap(m.from), to_step = step(m.to), to_wrap = wrap(m.to);
    while (row < rows) {
        unsigned x[EACH];
        Element* at[EACH];
        bool both[EACH];  // whether the row that is written has the second element of 16 bits, too
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const bool inside = row < rows;
            at[e] = inside ? to : nullptr, both[e] = column + 1 < columns;
            if (TOGETHER == 1 || WIDENS) {
                x[e] = inside && column < given ? *from : 0;
                if (TOGETHER == 2 && inside && column + 1 < given) x[e] |= (unsigned)from[m.from.column] << 16;
            } else {
                x[e] = inside ? *(const unsigned*)from : 0;
            }
            row += step_rows, column += step_columns, from += from_step, to += to_step;
            if (column >= end) column -= end, row++, from += from_wrap, to += to_wrap;
        }
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            if (!at[e]) continue;
            if (TOGETHER == 1 || WIDENS) {
                *(unsigned*)at[e] = x[e];
            } else {
                *at[e] = (Element)x[e];
                if (both[e]) at[e][m.to.column] = (Element)(x[e] >> 16);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS_OF_COPY) columns32(const CopyParams p) { copy_columns<unsigned, true>(p); }
extern "C" __global__ void __launch_bounds__(THREADS_OF_COPY)
widen16(const CopyParams p) { copy_columns<unsigned short, true>(p); }
extern "C" __global__ void __launch_bounds__(THREADS_OF_COPY)
narrow16(const CopyParams p) { copy_columns<unsigned short, false>(p); }
