// cuBLAS: products of small integers, whose sums are exact, against a loop. The case "unwritten" reads what nobody has written,
// "short" has a matrix that is too small, "host" one in the host's memory.
#include <cstdio>
#include <cstring>
#include <cublasLt.h>
#include <cublas_v2.h>
#include <vector>

#define CHECK(what) do { if (!(what)) printf("not so: %s (line %d)\n", #what, __LINE__); } while (0)
constexpr int M = 5, N = 4, K = 7;

template <class T> T* on_gpu(const std::vector<T>& x)
{
    T* p;
    cudaMalloc(&p, x.size() * sizeof(T));
    cudaMemcpy(p, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice);
    return p;
}
template <class T> std::vector<T> back(const T* p, size_t n)
{
    std::vector<T> x(n);
    cudaMemcpy(x.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost);
    return x;
}
template <class T> std::vector<T> numbers(size_t n, int seed)
{
    std::vector<T> x(n);
    for (size_t i = 0; i < n; i++) x[i] = T((float)((int)(i * 7 + seed) % 5 - 2));
    return x;
}
// C = 2 op(A) op(B) + 3 C by its definition, all by columns.
template <class T> std::vector<T> product(const std::vector<T>& a, bool at, const std::vector<T>& b, bool bt, std::vector<T> c)
{
    for (int j = 0; j < N; j++)
        for (int i = 0; i < M; i++) {
            float sum = 0;
            for (int k = 0; k < K; k++) sum += (float)a[at ? i * K + k : k * M + i] * (float)b[bt ? k * N + j : j * K + k];
            c[j * M + i] = T(2 * sum + 3 * (float)c[j * M + i]);
        }
    return c;
}
int main(int argc, char** argv)
{
    const char* mistake = argc > 1 ? argv[1] : "";
    cublasHandle_t handle;
    cublasCreate(&handle);
    const float alpha = 2, beta = 3, one = 1, zero = 0;
    const auto a = numbers<float>(M * K, 1), b = numbers<float>(K * N, 2), c = numbers<float>(M * N, 3);
    float *A = on_gpu(a), *B = on_gpu(b), *C = on_gpu(c);
    for (int way = 0; way < 4; way++) {
        const bool at = way & 1, bt = way & 2;
        cudaMemcpy(C, c.data(), c.size() * sizeof(float), cudaMemcpyHostToDevice);
        CHECK(cublasSgemm(handle, at ? CUBLAS_OP_T : CUBLAS_OP_N, bt ? CUBLAS_OP_T : CUBLAS_OP_N, M, N, K, &alpha, A, at ? K : M, B,
                          bt ? N : K, &beta, C, M) == CUBLAS_STATUS_SUCCESS);
        CHECK(back(C, M * N) == product(a, at, b, bt, c));
    }
    // Three of a batch, of half numbers, summed in float.
    const auto ha = numbers<__half>(3 * M * K, 1), hb = numbers<__half>(3 * K * N, 2);
    __half *HA = on_gpu(ha), *HB = on_gpu(hb), *HC;
    float halves_dot;
    cublasDotEx(handle, 7, HA, CUDA_R_16F, 1, HB, CUDA_R_16F, 2, &halves_dot, CUDA_R_32F, CUDA_R_32F);
    for (int i = 0; i < 7; i++) halves_dot -= (float)ha[i] * (float)hb[2 * i];
    CHECK(halves_dot == 0);
    cudaMalloc(&HC, 3 * M * N * sizeof(__half));
    CHECK(cublasGemmStridedBatchedEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &alpha, HA, CUDA_R_16F, M, M * K, HB, CUDA_R_16F, K,
                                     K * N, &zero, HC, CUDA_R_16F, M, M * N, 3, CUBLAS_COMPUTE_32F,
                                     CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
    const auto hc = back(HC, 3 * M * N);
    for (int n = 0; n < 3; n++) {
        const std::vector<__half> x(ha.begin() + n * M * K, ha.begin() + (n + 1) * M * K);
        const std::vector<__half> y(hb.begin() + n * K * N, hb.begin() + (n + 1) * K * N);
        const auto wanted = product(x, false, y, false, std::vector<__half>(M * N, __half(0.0f)));
        for (int i = 0; i < M * N; i++) CHECK((float)hc[n * M * N + i] == (float)wanted[i]);
    }
    // A bias and ReLU behind a product.
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t work;
    cublasLtMatrixLayout_t of_a, of_b, of_c;
    const cublasLtEpilogue_t last = CUBLASLT_EPILOGUE_RELU_BIAS;
    float* bias = on_gpu(numbers<float>(M, 4));
    cublasLtCreate(&lt), cublasLtMatmulDescCreate(&work, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(work, CUBLASLT_MATMUL_DESC_EPILOGUE, &last, sizeof last);
    cublasLtMatmulDescSetAttribute(work, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    cublasLtMatrixLayoutCreate(&of_a, CUDA_R_32F, M, K, M), cublasLtMatrixLayoutCreate(&of_b, CUDA_R_32F, K, N, K);
    cublasLtMatrixLayoutCreate(&of_c, CUDA_R_32F, M, N, M);
    CHECK(cublasLtMatmul(lt, work, &alpha, A, of_a, B, of_b, &zero, C, of_c, C, of_c, nullptr, nullptr, 0, 0) == CUBLAS_STATUS_SUCCESS);
    const auto plain = product(a, false, b, false, std::vector<float>(M * N)), found = back(C, M * N), added = back(bias, M);
    for (int i = 0; i < M * N; i++) CHECK(found[i] == std::max(plain[i] + added[i % M], 0.0f));
    // Vectors.
    float dot, norm, *x = on_gpu(std::vector<float>{3, 0, 4, 0}), *y = on_gpu(std::vector<float>{1, 2, 3, 4});
    int most;
    cublasSdot(handle, 2, x, 2, y, 1, &dot), cublasSnrm2(handle, 4, x, 1, &norm), cublasIsamax(handle, 4, x, 1, &most);
    CHECK(dot == 11 && norm == 5 && most == 3);
    cublasSaxpy(handle, 4, &alpha, x, 1, y, 1);
    CHECK((back(y, 4) == std::vector<float>{7, 2, 11, 4}));
    cublasSgemv(handle, CUBLAS_OP_T, 2, 2, &one, y, 2, x, 2, &zero, C, 1);  // columns (7, 2) and (11, 4) with (3, 4)
    CHECK((back(C, 2) == std::vector<float>{29, 49}));
    if (!strcmp(mistake, "unwritten")) {
        float* empty;
        cudaMalloc(&empty, M * K * sizeof(float));
        cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &one, empty, M, B, K, &zero, C, M);  // unwritten
        cudaFree(empty);
    }
    if (!strcmp(mistake, "short")) cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K + 1, &one, A, M, B, K + 1, &zero, C, M);  // short
    if (!strcmp(mistake, "host")) cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &one, a.data(), M, B, K, &zero, C, M);  // host
    if (!strcmp(mistake, "leading")) cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &one, A, M - 1, B, K, &zero, C, M);  // leading
    for (void* p : {(void*)A, (void*)B, (void*)C, (void*)HA, (void*)HB, (void*)HC, (void*)bias, (void*)x, (void*)y}) cudaFree(p);
    cublasLtMatmulDescDestroy(work), cublasLtDestroy(lt), cublasDestroy(handle);
    return 0;
}
