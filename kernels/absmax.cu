// absmax: the largest |element| of Q, of K and of V in a block of batches, for the check of the input's range.
//
// A float's bits without the sign, taken as an integer, are ordered as its magnitude is, with infinity above all
// numbers and NaN above infinity: one integer maximum finds both what is large and what is no number.
// Geometry: ceil(part / ABSMAX_CHUNK) * 3 * batches blocks of any whole warps, each for ABSMAX_CHUNK elements of one
// part (Q, K or V, N*d elements of a batch). `largest` holds three integers that were zero. The loader appends this
// file to a kernel's, so that a run loads one module.

extern "C" __global__ void
absmax(const uint4* elements, unsigned* largest, long long part)
{
    const long long chunks = (part + ABSMAX_CHUNK - 1) / ABSMAX_CHUNK, segment = blockIdx.x / chunks;
    const long long first = blockIdx.x % chunks * ABSMAX_CHUNK, last = min(first + ABSMAX_CHUNK, part);
    elements += segment * (part / 4);

    unsigned top = 0;
    for (long long e = first / 4 + threadIdx.x; e < last / 4; e += blockDim.x) {
        const uint4 x = elements[e];
        top = max(top, max(max(x.x & 0x7fffffffu, x.y & 0x7fffffffu), max(x.z & 0x7fffffffu, x.w & 0x7fffffffu)));
    }
    for (int bit = 16; bit; bit /= 2)
#ifdef __HIP__
        top = max(top, (unsigned)__shfl_xor((int)top, bit, 32));
#else
        top = max(top, __shfl_xor_sync(0xffffffffu, top, bit));
#endif
    if (threadIdx.x % 32 == 0) atomicMax(largest + segment % 3, top);
}
