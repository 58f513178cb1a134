// tablewriter: bytes that a launch is passed go to the GPU's memory.
//
// Tables of sequences are copied from the host's memory. A CUDA graph would read that again whenever it is replayed, when it may be
// gone; a launch's argument is the graph's own. So where a stream is captured, launches of this kernel write the table.
// Geometry: one block, whose threads write word after word.
// Shared:   none.
// Limits:   4 KB of arguments, as all GPUs allow; hw4cli/plans/tables.py cuts longer tables.

constexpr int MOST_WORDS = 1004;  // hw4cli/plans/tables.py has this number, too

struct TablePart {
    unsigned* to;
    int words, unused;
    unsigned word[MOST_WORDS];
};

extern "C" __global__ void tablewriter(const TablePart p)
{
    for (int n = threadIdx.x; n < p.words; n += blockDim.x) p.to[n] = p.word[n];
}
