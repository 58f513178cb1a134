// cuRAND: XORWOW and Philox, in kernels and by the host's interface. What is printed, test_libraries.py compares.
#include <cstdio>
// Of curand_kernel.h alone: it brings curand.h, as cuRAND's own does.
#include <curand_kernel.h>

#define CHECK(what) do { if (!(what)) printf("not so: %s (line %d)\n", #what, __LINE__); } while (0)

__global__ void bits()
{
    curandState xorwow, later;
    curand_init(0, 0, 0, &xorwow);
    printf("double %.16f\n", curand_uniform_double(&xorwow));
    // Skipping is what as many steps do, and a subsequence begins 2^67 further: 2^66 twice.
    curand_init(7, 3, 1000, &later), curand_init(7, 3, 0, &xorwow);
    for (int i = 0; i < 1000; i++) curand(&xorwow);
    CHECK(curand(&xorwow) == curand(&later));
    curand_init(7, 5, 0, &xorwow), curand_init(7, 2, 0, &later);
    skipahead_sequence(3, &later);
    CHECK(curand(&xorwow) == curand(&later));

    curandStatePhilox4_32_10_t philox, other;
    curand_init(0, 0, 0, &philox);
    const uint4 four = curand4(&philox);
    printf("philox %08x %08x %08x %08x\n", four.x, four.y, four.z, four.w);
    // The counter's low half is the offset's quarter, its upper half the subsequence; the key is the seed.
    curand_init(0x299f31d0a4093822ull, 0x0370734413198a2eull, 0, &philox);
    for (int i = 0; i < 2; i++) skipahead(4ull * 0x3fffffffffffffffull, &philox);  // four of its numbers for one of the counter's
    skipahead(4ull * (0x85a308d3243f6a88ull - 2 * 0x3fffffffffffffffull), &philox);
    printf("pi %08x", curand(&philox));
    for (int i = 0; i < 3; i++) printf(" %08x", curand(&philox));
    printf("\n");
    curand_init(5, 1, 6, &philox), curand_init(5, 1, 0, &other);
    for (int i = 0; i < 6; i++) curand(&other);
    const uint4 x = curand4(&philox);
    CHECK(x.x == curand(&other) && x.y == curand(&other) && x.z == curand(&other) && x.w == curand(&other));
}
__global__ void firsts(float* out)
{
    curandState state;
    curand_init(1234, threadIdx.x, 0, &state);
    out[threadIdx.x] = curand_uniform(&state);
}
__global__ void moments(double* sums)
{
    curandState state;
    curand_init(42, threadIdx.x, 0, &state);
    double sum = 0, squares = 0;
    for (int i = 0; i < 101; i++) {
        const double x = curand_normal(&state);
        sum += x, squares += x * x;
    }
    atomicAdd(&sums[0], sum), atomicAdd(&sums[1], squares);
}
int main()
{
    bits<<<1, 1>>>();
    double *sums, found[2];
    cudaMalloc(&sums, sizeof found), cudaMemset(sums, 0, sizeof found);
    moments<<<1, 64>>>(sums);
    cudaMemcpy(found, sums, sizeof found, cudaMemcpyDeviceToHost);
    CHECK(fabs(found[0] / 6464) < 0.05 && fabs(found[1] / 6464 - 1) < 0.05);

    curandGenerator_t generator;
    CHECK(curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_DEFAULT) == CURAND_STATUS_SUCCESS);
    curandSetPseudoRandomGeneratorSeed(generator, 1234ull);
    float *numbers, few[8];
    cudaMalloc(&numbers, 5000 * sizeof(float));
    curandGenerateUniform(generator, numbers, 5000);
    cudaMemcpy(few, numbers, sizeof few, cudaMemcpyDeviceToHost);
    float *of_kernels, first[8];
    cudaMalloc(&of_kernels, sizeof first);
    firsts<<<1, 8>>>(of_kernels);
    cudaMemcpy(first, of_kernels, sizeof first, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 8; i++) CHECK(few[i] == first[i]);  // a number of each sequence
    cudaFree(of_kernels);
    // Of each sequence the numbers follow each other 4,096 apart; behind an offset, the same ones come.
    float next, again;
    cudaMemcpy(&next, numbers + 4097, sizeof next, cudaMemcpyDeviceToHost);
    curandSetGeneratorOffset(generator, 4097);
    curandGenerateUniform(generator, numbers, 4);
    cudaMemcpy(&again, numbers, sizeof again, cudaMemcpyDeviceToHost);
    CHECK(next == again);
    CHECK(curandGenerateNormal(generator, numbers, 1000, 0, 1) == CURAND_STATUS_SUCCESS);
    curandDestroyGenerator(generator);
    cudaFree(numbers), cudaFree(sums);
    return 0;
}
