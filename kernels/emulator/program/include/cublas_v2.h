// Stands in for cuBLAS: vectors, products with a vector and products of matrices, of which each element is the sum in
// order of k, fused and in the type of the computation. What is not here is refused by its name.
#pragma once
#include "cuComplex.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "library_types.h"

enum cublasStatus_t {
    CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_ARCH_MISMATCH = 8, CUBLAS_STATUS_MAPPING_ERROR = 11,
    CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_INTERNAL_ERROR = 14, CUBLAS_STATUS_NOT_SUPPORTED = 15,
    CUBLAS_STATUS_LICENSE_ERROR = 16
};
enum cublasOperation_t {
    CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2, CUBLAS_OP_HERMITAN = 2, CUBLAS_OP_CONJG = 3
};
enum cublasFillMode_t { CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER, CUBLAS_FILL_MODE_FULL };
enum cublasDiagType_t { CUBLAS_DIAG_NON_UNIT, CUBLAS_DIAG_UNIT };
enum cublasSideMode_t { CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE };
enum cublasAtomicsMode_t { CUBLAS_ATOMICS_NOT_ALLOWED, CUBLAS_ATOMICS_ALLOWED };
enum cublasMath_t {
    CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
};
enum cublasComputeType_t {
    CUBLAS_COMPUTE_16F = 64, CUBLAS_COMPUTE_16F_PEDANTIC = 65, CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_64F = 70, CUBLAS_COMPUTE_64F_PEDANTIC = 71, CUBLAS_COMPUTE_32I = 72, CUBLAS_COMPUTE_32I_PEDANTIC = 73,
    CUBLAS_COMPUTE_32F_FAST_16F = 74, CUBLAS_COMPUTE_32F_FAST_16BF = 75, CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};
enum cublasGemmAlgo_t {
    CUBLAS_GEMM_DFALT = -1, CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_ALGO0 = 0, CUBLAS_GEMM_DFALT_TENSOR_OP = 99,
    CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99, CUBLAS_GEMM_ALGO0_TENSOR_OP = 100
};
struct cublasContext {
    cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
    cudaStream_t stream = nullptr;
};
typedef cublasContext* cublasHandle_t;

namespace hw4 {
namespace blas {
// A matrix by columns, and the next of a batch: `stride` elements behind, or, where they are listed, of the next pointer.
struct Matrix {
    const void* at;
    cudaDataType type;
    long long rows;  // from one column to the next
    long long stride = 0;
    bool listed = false;
};
struct Call {
    const char* what;
    Place from;
    cublasHandle_t handle;
};
enum class Last { NOTHING, RELU, GELU };
struct Product {
    cublasOperation_t a_op, b_op;
    long long m, n, k;
    const void* alpha;
    Matrix a, b;
    const void* beta;
    Matrix c, d;
    cublasComputeType_t compute;
    cudaDataType scale;
    long long batches = 1;
    // What is done with each element at last.
    Matrix bias = {nullptr, CUDA_R_32F, 0}, aux = {nullptr, CUDA_R_32F, 0};
    Last last = Last::NOTHING;
};
cublasStatus_t multiply(const Call&, const Product&);
// A vector: n elements `step` apart; a negative step begins at its end.
struct Vector {
    const void* at;
    int step;
};
enum Work { AXPY, SCAL, COPY, SWAP, DOT, NRM2, ASUM, AMAX, AMIN };
cublasStatus_t vectors(const Call&, Work, bool is_double, int n, const void* alpha, Vector x, Vector y, void* result);
cublasStatus_t multiply_vector(const Call&, bool is_double, cublasOperation_t, int m, int n, const void* alpha, Matrix a,
                               Vector x, const void* beta, Vector y);
cublasStatus_t add_outer(const Call&, bool is_double, int m, int n, const void* alpha, Vector x, Vector y, Matrix a);
cublasStatus_t add(const Call&, cublasOperation_t, cublasOperation_t, int m, int n, const void* alpha, Matrix a,
                   const void* beta, Matrix b, Matrix c);
cublasStatus_t copy_matrix(const Call&, int rows, int columns, int bytes, const void* from, int from_rows, void* to,
                           int to_rows, cudaMemcpyKind);
}  // namespace blas
}  // namespace hw4
#define EMU_BLAS(name) hw4::blas::Call{name, from, handle}

// ---- The handle

inline cublasStatus_t cublasCreate(cublasHandle_t* handle) { return *handle = new cublasContext, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) { return delete handle, CUBLAS_STATUS_SUCCESS; }
#define cublasCreate_v2 cublasCreate
#define cublasDestroy_v2 cublasDestroy
inline cublasStatus_t cublasGetVersion(cublasHandle_t, int* n) { return *n = 120000, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t s) {
    return handle->stream = s, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t* s) {
    return *s = handle->stream, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    return handle->math = mode, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
    return *mode = handle->math, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode) {
    return handle->pointers = mode, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasGetPointerMode(cublasHandle_t handle, cublasPointerMode_t* mode) {
    return *mode = handle->pointers, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, size_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasGetStatusString(cublasStatus_t);
const char* cublasGetStatusName(cublasStatus_t);

// ---- Copies

inline cublasStatus_t cublasSetMatrix(int rows, int columns, int bytes, const void* a, int lda, void* b, int ldb, HW4_FROM) {
    return hw4::blas::copy_matrix({"cublasSetMatrix", from, nullptr}, rows, columns, bytes, a, lda, b, ldb,
                                  cudaMemcpyHostToDevice);
}
inline cublasStatus_t cublasGetMatrix(int rows, int columns, int bytes, const void* a, int lda, void* b, int ldb, HW4_FROM) {
    return hw4::blas::copy_matrix({"cublasGetMatrix", from, nullptr}, rows, columns, bytes, a, lda, b, ldb,
                                  cudaMemcpyDeviceToHost);
}
inline cublasStatus_t cublasSetVector(int n, int bytes, const void* x, int step, void* y, int to_step, HW4_FROM) {
    return hw4::blas::copy_matrix({"cublasSetVector", from, nullptr}, 1, n, bytes, x, step, y, to_step,
                                  cudaMemcpyHostToDevice);
}
inline cublasStatus_t cublasGetVector(int n, int bytes, const void* x, int step, void* y, int to_step, HW4_FROM) {
    return hw4::blas::copy_matrix({"cublasGetVector", from, nullptr}, 1, n, bytes, x, step, y, to_step,
                                  cudaMemcpyDeviceToHost);
}

// ---- Products of matrices

namespace hw4 {
namespace blas {
constexpr cublasComputeType_t compute_of(cudaDataType type) {
    return type == CUDA_R_64F || type == CUDA_C_64F ? CUBLAS_COMPUTE_64F
           : type == CUDA_R_16F                     ? CUBLAS_COMPUTE_16F
           : type == CUDA_R_32I                     ? CUBLAS_COMPUTE_32I
                                                    : CUBLAS_COMPUTE_32F;
}
// As cublasGemmEx has it: the type of alpha and beta for a computation and an output.
constexpr cudaDataType scale_of(cublasComputeType_t compute, cudaDataType c) {
    const bool complex = c == CUDA_C_32F || c == CUDA_C_64F;
    switch (compute) {
    case CUBLAS_COMPUTE_16F: case CUBLAS_COMPUTE_16F_PEDANTIC: return CUDA_R_16F;
    case CUBLAS_COMPUTE_64F: case CUBLAS_COMPUTE_64F_PEDANTIC: return complex ? CUDA_C_64F : CUDA_R_64F;
    case CUBLAS_COMPUTE_32I: case CUBLAS_COMPUTE_32I_PEDANTIC: return c == CUDA_R_32I ? CUDA_R_32I : CUDA_R_32F;
    default: return complex ? CUDA_C_32F : CUDA_R_32F;
    }
}
// Before there were types of computation, one of numbers said it.
constexpr cublasComputeType_t computed_in(cublasComputeType_t type) { return type; }
constexpr cublasComputeType_t computed_in(cudaDataType type) { return compute_of(type); }
inline cublasStatus_t gemm(const Call& call, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k,
                           const void* alpha, const Matrix& a, const Matrix& b, const void* beta, const Matrix& c,
                           int batches, cublasComputeType_t compute) {
    return multiply(call, {a_op, b_op, m, n, k, alpha, a, b, beta, c, c, compute, scale_of(compute, c.type), batches});
}
}  // namespace blas
}  // namespace hw4
#define EMU_GEMM(letter, T, type)                                                                                          \
    inline cublasStatus_t cublas##letter##gemm(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, \
                                               int n, int k, const T* alpha, const T* a, int lda, const T* b, int ldb,       \
                                               const T* beta, T* c, int ldc, HW4_FROM) {                                    \
        return hw4::blas::gemm(EMU_BLAS("cublas" #letter "gemm"), a_op, b_op, m, n, k, alpha, {a, type, lda}, {b, type, ldb}, \
                               beta, {c, type, ldc}, 1, hw4::blas::compute_of(type));                                       \
    }                                                                                                                      \
    inline cublasStatus_t cublas##letter##gemmStridedBatched(                                                               \
        cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k, const T* alpha, const T* a, \
        int lda, long long a_stride, const T* b, int ldb, long long b_stride, const T* beta, T* c, int ldc,                 \
        long long c_stride, int batches, HW4_FROM) {                                                                       \
        return hw4::blas::gemm(EMU_BLAS("cublas" #letter "gemmStridedBatched"), a_op, b_op, m, n, k, alpha,                  \
                               {a, type, lda, a_stride}, {b, type, ldb, b_stride}, beta, {c, type, ldc, c_stride}, batches,  \
                               hw4::blas::compute_of(type));                                                               \
    }                                                                                                                      \
    inline cublasStatus_t cublas##letter##gemmBatched(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, \
                                                      int m, int n, int k, const T* alpha, const T* const a[], int lda,     \
                                                      const T* const b[], int ldb, const T* beta, T* const c[], int ldc,     \
                                                      int batches, HW4_FROM) {                                             \
        return hw4::blas::gemm(EMU_BLAS("cublas" #letter "gemmBatched"), a_op, b_op, m, n, k, alpha, {a, type, lda, 0, true}, \
                               {b, type, ldb, 0, true}, beta, {c, type, ldc, 0, true}, batches, hw4::blas::compute_of(type)); \
    }
EMU_GEMM(S, float, CUDA_R_32F)
EMU_GEMM(D, double, CUDA_R_64F)
EMU_GEMM(H, __half, CUDA_R_16F)
EMU_GEMM(C, cuComplex, CUDA_C_32F)
EMU_GEMM(Z, cuDoubleComplex, CUDA_C_64F)
template <class Compute, class Algorithm>
inline cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k,
                                   const void* alpha, const void* a, cudaDataType a_type, int lda, const void* b,
                                   cudaDataType b_type, int ldb, const void* beta, void* c, cudaDataType c_type, int ldc,
                                   Compute compute, Algorithm, HW4_FROM) {
    return hw4::blas::gemm(EMU_BLAS("cublasGemmEx"), a_op, b_op, m, n, k, alpha, {a, a_type, lda}, {b, b_type, ldb}, beta,
                           {c, c_type, ldc}, 1, hw4::blas::computed_in(compute));
}
inline cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k,
                                    const float* alpha, const void* a, cudaDataType a_type, int lda, const void* b,
                                    cudaDataType b_type, int ldb, const float* beta, void* c, cudaDataType c_type, int ldc,
                                    HW4_FROM) {
    return hw4::blas::gemm(EMU_BLAS("cublasSgemmEx"), a_op, b_op, m, n, k, alpha, {a, a_type, lda}, {b, b_type, ldb}, beta,
                           {c, c_type, ldc}, 1, CUBLAS_COMPUTE_32F);
}
template <class Compute, class Algorithm>
inline cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m,
                                                 int n, int k, const void* alpha, const void* a, cudaDataType a_type, int lda,
                                                 long long a_stride, const void* b, cudaDataType b_type, int ldb,
                                                 long long b_stride, const void* beta, void* c, cudaDataType c_type, int ldc,
                                                 long long c_stride, int batches, Compute compute, Algorithm, HW4_FROM) {
    return hw4::blas::gemm(EMU_BLAS("cublasGemmStridedBatchedEx"), a_op, b_op, m, n, k, alpha, {a, a_type, lda, a_stride},
                           {b, b_type, ldb, b_stride}, beta, {c, c_type, ldc, c_stride}, batches,
                           hw4::blas::computed_in(compute));
}
template <class Compute, class Algorithm>
inline cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n,
                                          int k, const void* alpha, const void* const a[], cudaDataType a_type, int lda,
                                          const void* const b[], cudaDataType b_type, int ldb, const void* beta,
                                          void* const c[], cudaDataType c_type, int ldc, int batches, Compute compute,
                                          Algorithm, HW4_FROM) {
    return hw4::blas::gemm(EMU_BLAS("cublasGemmBatchedEx"), a_op, b_op, m, n, k, alpha, {a, a_type, lda, 0, true},
                           {b, b_type, ldb, 0, true}, beta, {c, c_type, ldc, 0, true}, batches,
                           hw4::blas::computed_in(compute));
}

// ---- Vectors, and products with one

#define EMU_BLAS_REAL(letter, small, T, is_double, type)                                                                    \
    inline cublasStatus_t cublas##letter##axpy(cublasHandle_t handle, int n, const T* alpha, const T* x, int x_step, T* y,   \
                                               int y_step, HW4_FROM) {                                                     \
        return hw4::blas::vectors(EMU_BLAS("cublas" #letter "axpy"), hw4::blas::AXPY, is_double, n, alpha, {x, x_step},      \
                                  {y, y_step}, nullptr);                                                                   \
    }                                                                                                                      \
    inline cublasStatus_t cublas##letter##scal(cublasHandle_t handle, int n, const T* alpha, T* x, int x_step, HW4_FROM) {   \
        return hw4::blas::vectors(EMU_BLAS("cublas" #letter "scal"), hw4::blas::SCAL, is_double, n, alpha, {x, x_step},      \
                                  {x, x_step}, nullptr);                                                                   \
    }                                                                                                                      \
    inline cublasStatus_t cublas##letter##copy(cublasHandle_t handle, int n, const T* x, int x_step, T* y, int y_step,       \
                                               HW4_FROM) {                                                                 \
        return hw4::blas::vectors(EMU_BLAS("cublas" #letter "copy"), hw4::blas::COPY, is_double, n, nullptr, {x, x_step},    \
                                  {y, y_step}, nullptr);                                                                   \
    }                                                                                                                      \
    inline cublasStatus_t cublas##letter##swap(cublasHandle_t handle, int n, T* x, int x_step, T* y, int y_step, HW4_FROM) { \
        return hw4::blas::vectors(EMU_BLAS("cublas" #letter "swap"), hw4::blas::SWAP, is_double, n, nullptr, {x, x_step},    \
                                  {y, y_step}, nullptr);                                                                   \
    }                                                                                                                      \
    inline cublasStatus_t cublas##letter##dot(cublasHandle_t handle, int n, const T* x, int x_step, const T* y, int y_step,  \
                                              T* result, HW4_FROM) {                                                       \
        return hw4::blas::vectors(EMU_BLAS("cublas" #letter "dot"), hw4::blas::DOT, is_double, n, nullptr, {x, x_step},      \
                                  {y, y_step}, result);                                                                    \
    }                                                                                                                      \
    inline cublasStatus_t cublas##letter##nrm2(cublasHandle_t handle, int n, const T* x, int x_step, T* result, HW4_FROM) {  \
        return hw4::blas::vectors(EMU_BLAS("cublas" #letter "nrm2"), hw4::blas::NRM2, is_double, n, nullptr, {x, x_step},    \
                                  {nullptr, 1}, result);                                                                   \
    }                                                                                                                      \
    inline cublasStatus_t cublas##letter##asum(cublasHandle_t handle, int n, const T* x, int x_step, T* result, HW4_FROM) {  \
        return hw4::blas::vectors(EMU_BLAS("cublas" #letter "asum"), hw4::blas::ASUM, is_double, n, nullptr, {x, x_step},    \
                                  {nullptr, 1}, result);                                                                   \
    }                                                                                                                      \
    inline cublasStatus_t cublasI##small##amax(cublasHandle_t handle, int n, const T* x, int x_step, int* result, HW4_FROM) { \
        return hw4::blas::vectors(EMU_BLAS("cublasI" #small "amax"), hw4::blas::AMAX, is_double, n, nullptr, {x, x_step},    \
                                  {nullptr, 1}, result);                                                                   \
    }                                                                                                                      \
    inline cublasStatus_t cublasI##small##amin(cublasHandle_t handle, int n, const T* x, int x_step, int* result, HW4_FROM) { \
        return hw4::blas::vectors(EMU_BLAS("cublasI" #small "amin"), hw4::blas::AMIN, is_double, n, nullptr, {x, x_step},    \
                                  {nullptr, 1}, result);                                                                   \
    }                                                                                                                      \
    inline cublasStatus_t cublas##letter##gemv(cublasHandle_t handle, cublasOperation_t op, int m, int n, const T* alpha,    \
                                               const T* a, int lda, const T* x, int x_step, const T* beta, T* y, int y_step, \
                                               HW4_FROM) {                                                                 \
        return hw4::blas::multiply_vector(EMU_BLAS("cublas" #letter "gemv"), is_double, op, m, n, alpha, {a, type, lda},     \
                                          {x, x_step}, beta, {y, y_step});                                                 \
    }                                                                                                                      \
    inline cublasStatus_t cublas##letter##ger(cublasHandle_t handle, int m, int n, const T* alpha, const T* x, int x_step,   \
                                              const T* y, int y_step, T* a, int lda, HW4_FROM) {                           \
        return hw4::blas::add_outer(EMU_BLAS("cublas" #letter "ger"), is_double, m, n, alpha, {x, x_step}, {y, y_step},      \
                                    {a, type, lda});                                                                       \
    }                                                                                                                      \
    inline cublasStatus_t cublas##letter##geam(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, \
                                               int n, const T* alpha, const T* a, int lda, const T* beta, const T* b,        \
                                               int ldb, T* c, int ldc, HW4_FROM) {                                         \
        return hw4::blas::add(EMU_BLAS("cublas" #letter "geam"), a_op, b_op, m, n, alpha, {a, type, lda}, beta,              \
                              {b, type, ldb}, {c, type, ldc});                                                             \
    }
EMU_BLAS_REAL(S, s, float, false, CUDA_R_32F)
EMU_BLAS_REAL(D, d, double, true, CUDA_R_64F)

// ---- Vectors of any type: computed in float, or in double where one is that

namespace hw4 {
namespace blas {
struct Typed {
    const void* at;
    cudaDataType type;
    int step;
};
cublasStatus_t typed_vectors(const Call&, Work, int n, const void* alpha, cudaDataType alpha_type, Typed x, Typed y, void* result,
                             cudaDataType result_type);
}  // namespace blas
}  // namespace hw4
inline cublasStatus_t cublasDotEx(cublasHandle_t handle, int n, const void* x, cudaDataType x_type, int x_step, const void* y,
                                  cudaDataType y_type, int y_step, void* result, cudaDataType type, cudaDataType, HW4_FROM) {
    return hw4::blas::typed_vectors(EMU_BLAS("cublasDotEx"), hw4::blas::DOT, n, nullptr, type, {x, x_type, x_step},
                                    {y, y_type, y_step}, result, type);
}
inline cublasStatus_t cublasNrm2Ex(cublasHandle_t handle, int n, const void* x, cudaDataType x_type, int x_step, void* result,
                                   cudaDataType type, cudaDataType, HW4_FROM) {
    return hw4::blas::typed_vectors(EMU_BLAS("cublasNrm2Ex"), hw4::blas::NRM2, n, nullptr, type, {x, x_type, x_step},
                                    {x, x_type, x_step}, result, type);
}
inline cublasStatus_t cublasAxpyEx(cublasHandle_t handle, int n, const void* alpha, cudaDataType alpha_type, const void* x,
                                   cudaDataType x_type, int x_step, void* y, cudaDataType y_type, int y_step, cudaDataType,
                                   HW4_FROM) {
    return hw4::blas::typed_vectors(EMU_BLAS("cublasAxpyEx"), hw4::blas::AXPY, n, alpha, alpha_type, {x, x_type, x_step},
                                    {y, y_type, y_step}, nullptr, y_type);
}
inline cublasStatus_t cublasScalEx(cublasHandle_t handle, int n, const void* alpha, cudaDataType alpha_type, void* x,
                                   cudaDataType x_type, int x_step, cudaDataType, HW4_FROM) {
    return hw4::blas::typed_vectors(EMU_BLAS("cublasScalEx"), hw4::blas::SCAL, n, alpha, alpha_type, {x, x_type, x_step},
                                    {x, x_type, x_step}, nullptr, x_type);
}
