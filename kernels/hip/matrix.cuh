// Products of fp32 matrices by a wavefront of 64 lanes, on the matrix cores of AMD's GPUs for data centres (gfx908 on).

typedef float Sums __attribute__((ext_vector_type(16)));

// sums + A B for A 32 x 2 and B 2 x 32. Lane l gives A[l % 32][l / 32] and B[l / 32][l % 32]; it holds, as number n of its
// sums, row 8 * (n / 4) + 4 * (l / 32) + n % 4 of column l % 32. Products and sums are fp32, each rounded.
__device__ __forceinline__ Sums multiply_add(float a, float b, Sums sums) {
    return __builtin_amdgcn_mfma_f32_32x32x2f32(a, b, sums, 0, 0, 0);
}
