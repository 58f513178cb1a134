// absmax: the largest |element| of Q, of K and of V in a block of batches, and the largest norms of a row of Q and of K, for the
// bound of the error.
//
// A float's bits without the sign, taken as an integer, are ordered as its magnitude is, with infinity above all
// numbers and NaN above infinity: one integer maximum finds both what is large and what is no number. A norm is found squared,
// each square rounded up to a multiple of 2^-7: the last bit of floats from 2^16 to 2^17, where the sums begin. They are exact up
// to there, whatever their order, so that every kernel finds the same number (absmax.cuh); what is larger is only known to be so.
// Geometry: ceil(N / rows) blocks of any whole warps for each part (Q, K or V of a batch; the first is part `first_part` of its
// batch), each for rows = ABSMAX_CHUNK / d rows. `largest` holds five integers that were zero: of Q and of K the element and the
// square, of V the element. The loader appends this file to a kernel's, so that a run loads one module.

struct AbsmaxParams {
    const float4* elements;
    unsigned* largest;
    int N, d, first_part;
};

extern "C" __global__ void absmax(const AbsmaxParams p)
{
    const float4* elements = p.elements;
    unsigned* largest = p.largest;
    const int N = p.N, d = p.d, first_part = p.first_part;
    const int rows = ABSMAX_CHUNK / d, chunks = (N + rows - 1) / rows, segment = blockIdx.x / chunks;
    const int part = (first_part + segment) % 3;
    const int first = blockIdx.x % chunks * rows, last = min(first + rows, N);
    const int lanes = d <= 32 ? 8 : d <= 64 ? 16 : 32;  // to a row, each with four columns
    const int column = threadIdx.x & (lanes - 1), step = blockDim.x / lanes;

    // A comparison with what is recorded already saves most warps the atomics: hundreds of thousands would queue for one address.
    const volatile unsigned* noted = largest + 2 * part;
    const unsigned top_before = noted[0], squares_before = part < 2 ? noted[1] : 0;
    unsigned top = 0, squares = 0;
    constexpr int TOGETHER = 4;  // rows of a thread whose loads are on their way at once
    for (int base = first; base < last; base += TOGETHER * step) {
        const int row = base + threadIdx.x / lanes, stride = step * (d / 4);
        const float4* from = elements + ((long long)segment * N + row) * (d / 4) + column;
        float4 x[TOGETHER];
        float sum[TOGETHER];
#pragma unroll
        for (int n = 0; n < TOGETHER; n++)
            x[n] = row + n * step < last && column < d / 4 ? from[n * stride] : float4{0, 0, 0, 0};
#pragma unroll
        for (int n = 0; n < TOGETHER; n++) {
            const float values[4] = {x[n].x, x[n].y, x[n].z, x[n].w};
            sum[n] = 0x1p16f;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                top = max(top, __float_as_uint(values[e]) & 0x7fffffffu);
#ifdef __HIP__  // which rounds to nearest alone
                const float near = fmaf(values[e], values[e], sum[n]);
                const bool less = fmaf(values[e], values[e], sum[n] - near) > 0;
                sum[n] = less ? __uint_as_float(__float_as_uint(near) + 1) : near;
#else
                sum[n] = __fmaf_ru(values[e], values[e], sum[n]);
#endif
            }
            sum[n] -= 0x1p16f;
        }
        if (part == 2) continue;  // the norms of V are not needed
        for (int bit = 1; bit < lanes; bit *= 2) {
#pragma unroll
            for (int n = 0; n < TOGETHER; n++)
#ifdef __HIP__
                sum[n] += __shfl_xor(sum[n], bit, 32);
#else
                sum[n] += __shfl_xor_sync(0xffffffffu, sum[n], bit);
#endif
        }
#pragma unroll
        for (int n = 0; n < TOGETHER; n++) squares = max(squares, __float_as_uint(sum[n]));
    }
    for (int bit = 16; bit; bit /= 2) {
#ifdef __HIP__
        top = max(top, (unsigned)__shfl_xor((int)top, bit, 32));
        squares = max(squares, (unsigned)__shfl_xor((int)squares, bit, 32));
#else
        top = max(top, __shfl_xor_sync(0xffffffffu, top, bit));
        squares = max(squares, __shfl_xor_sync(0xffffffffu, squares, bit));
#endif
    }
    if (threadIdx.x % 32 != 0) return;
    if (top > top_before) atomicMax(largest + 2 * part, top);
    if (squares > squares_before) atomicMax(largest + 2 * part + 1, squares);
}
