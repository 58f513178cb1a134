// choice: which of several kernels computes, by how large Q, K and V are: the first one whose error is sure to be small enough, or
// the last of all. The host need not wait for what the range check (absmax.cu) has found.
//
// A host that read the range would wait for the GPU, and the GPU for the host's next launch. Here all kernels are launched behind
// this one, and all blocks but those of the one that it chooses end at once (ONLY_IF_CHOSEN of params.cuh). What each kernel allows
// comes from the host, as limits (hw4cli/plans/limits.py): of the product of the norms of a row of Q and of K there are classes, and
// of each class the most that |V| may be.
// Geometry: one thread.
// Shared:   none.
// Limits:   LIMITED kernels before the last. NaN and infinity are within no limit: then the last one computes.

constexpr int LIMITED = 4, CLASSES = 64;  // hw4cli/plans/limits.py and choice.py have these numbers, too
constexpr double FIRST = 16;              // the largest squared product of the first class; then 24, 32, 48, 64 and so on
constexpr float USUAL = 3;                // the assignment's range
constexpr float SQUARES_END = 0x1p16f;    // from which on a norm's square is not known (absmax.cu)

struct KernelLimits {
    double element, squares;  // the most of an element of Q and K, and of the square of a row's norm
    double usual;             // the latter where no element of the three is more than USUAL, whatever the class
    float least_v, most_v[CLASSES];
};

struct ChoiceParams {
    const unsigned* found;  // as the range check leaves it: of Q and of K the largest element and square, of V the element
    unsigned* choice;       // where the number of the kernel goes
    double ratio;           // of the scale to 1/sqrt(d): Q is taken so many times as large
    int d, kernels;         // columns of a row that are no zeros; kernels before the last
    KernelLimits of[LIMITED];
};

// The most that the square of a row's norm can be: what is known, or what the elements allow.
__device__ inline double squares_of(float squares, double element, int d)
{
    const double allowed = element * element * d;
    return squares < SQUARES_END ? fmin(double(squares), allowed) : allowed;
}

extern "C" __global__ void choice(const ChoiceParams p)
{
    if (threadIdx.x > 0) return;
    auto found = [=](int n) { return __uint_as_float(p.found[n]); };
    const double q = found(0) * p.ratio, k = found(2);
    const double q_squares = squares_of(found(1), found(0), p.d) * p.ratio * p.ratio, k_squares = squares_of(found(3), k, p.d);
    const float v = found(4);
    const double product = q_squares * k_squares * (1 + 0x1p-40);  // more than what roundings change
    auto top = [](int n) { return FIRST * (1ll << n / 2) * (n % 2 ? 1.5 : 1.0); };
    int number = 0, chosen = 0;
    while (number < CLASSES && !(product <= top(number))) number++;
    const bool in_usual = q <= USUAL && k <= USUAL && v <= USUAL;
    for (; chosen < p.kernels; chosen++) {
        const KernelLimits& most = p.of[chosen];
        const bool usual = in_usual && q_squares <= most.usual && k_squares <= most.usual;
        const bool rows = q <= most.element && k <= most.element && q_squares <= most.squares && k_squares <= most.squares;
        if (most.least_v <= v && (usual || (rows && number < CLASSES && v <= most.most_v[number]))) break;
    }
    *p.choice = chosen;
}
