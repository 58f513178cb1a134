// columns: copies of matrices that give their rows zero columns, or take these away.
//
// Kernels load and store 16 bytes at once, so their rows are a multiple of 4 columns of 32 bits, or of 8 of 16 bits. Of another
// head size, Q, K and V are copied to rows of the next multiple before, and the columns of O that there are behind. Zero columns
// add nothing to a score, and what belongs to them in O is left there.
// Geometry: for each matrix and head, a block for so many rows as have at most PASS elements; all matrices of a launch side by
//           side. A block's threads go through its rows element after element, EACH of them at once, and so both sides are read
//           and written by whole warps, whatever the strides.
// Shared:   none.
// Limits:   any strides, of rows whose elements lie where their type may lie.

constexpr int MOST = 5;  // matrices of a launch; hw4cli/compute/columns.py has these numbers, too
constexpr int THREADS_OF_COPY = 256, EACH = 8, PASS = 4096;

struct CopySide {
    void* data;
    long long batch, head, row, column;  // strides, in elements
};

struct CopiedMatrix {
    CopySide from, to;
    long long blocks;                // in all heads
    int heads, rows, block_rows;     // of a batch, of a head, of a block
    int given, columns;              // of a row that is read, and of one that is written: what is missing is zero
};

struct CopyParams {
    CopiedMatrix of[MOST];  // those after the last have no blocks
};

template <class Element> __device__ inline void copy_columns(const CopyParams& p)
{
    long long block = blockIdx.x;
    int n = 0;
    while (block >= p.of[n].blocks) block -= p.of[n++].blocks;
    const CopiedMatrix& m = p.of[n];
    const int chunks = (m.rows - 1) / m.block_rows + 1, columns = m.columns, given = m.given;
    const long long matrix = block / chunks, batch = matrix / m.heads, head = matrix % m.heads;
    const int first = int(block % chunks) * m.block_rows, rows = min(m.block_rows, m.rows - first);
    int row = threadIdx.x / columns, column = threadIdx.x % columns;
    auto place = [=](const CopySide& side) {
        return (Element*)side.data + batch * side.batch + head * side.head + (first + row) * side.row + column * side.column;
    };
    const Element* from = place(m.from);
    Element* to = place(m.to);
    // From an element of a thread to its next one: without a division, and with no product.
    const int step_rows = THREADS_OF_COPY / columns, step_columns = THREADS_OF_COPY % columns;
    auto step = [=](const CopySide& side) { return step_rows * side.row + step_columns * side.column; };
    auto wrap = [=](const CopySide& side) { return side.row - columns * side.column; };
    const long long from_step = step(m.from), from_wrap = wrap(m.from), to_step = step(m.to), to_wrap = wrap(m.to);
    while (row < rows) {
        Element x[EACH];
        Element* at[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            at[e] = row < rows ? to : nullptr;
            x[e] = row < rows && column < given ? *from : Element(0);
            row += step_rows, column += step_columns, from += from_step, to += to_step;
            if (column >= columns) column -= columns, row++, from += from_wrap, to += to_wrap;
        }
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (at[e]) *at[e] = x[e];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS_OF_COPY) columns16(const CopyParams p) { copy_columns<unsigned short>(p); }
extern "C" __global__ void __launch_bounds__(THREADS_OF_COPY) columns32(const CopyParams p) { copy_columns<unsigned>(p); }
