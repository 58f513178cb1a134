// Stands in for cuBLASLt: its products, with a bias, ReLU or GELU behind them.
#pragma once
#include "cublas_v2.h"

typedef cublasContext* cublasLtHandle_t;
enum cublasLtOrder_t { CUBLASLT_ORDER_COL, CUBLASLT_ORDER_ROW };
enum cublasLtPointerMode_t { CUBLASLT_POINTER_MODE_HOST, CUBLASLT_POINTER_MODE_DEVICE };
enum cublasLtEpilogue_t {
    CUBLASLT_EPILOGUE_DEFAULT = 1, CUBLASLT_EPILOGUE_RELU = 2, CUBLASLT_EPILOGUE_BIAS = 4, CUBLASLT_EPILOGUE_RELU_BIAS = 6,
    CUBLASLT_EPILOGUE_GELU = 32, CUBLASLT_EPILOGUE_GELU_BIAS = 36, CUBLASLT_EPILOGUE_RELU_AUX = 130,
    CUBLASLT_EPILOGUE_RELU_AUX_BIAS = 134, CUBLASLT_EPILOGUE_GELU_AUX = 160, CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 164,
    CUBLASLT_EPILOGUE_DRELU = 136, CUBLASLT_EPILOGUE_DGELU = 192, CUBLASLT_EPILOGUE_BGRADA = 256,
    CUBLASLT_EPILOGUE_BGRADB = 512
};
enum cublasLtMatmulDescAttributes_t {
    CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLASLT_MATMUL_DESC_SCALE_TYPE, CUBLASLT_MATMUL_DESC_POINTER_MODE,
    CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSC, CUBLASLT_MATMUL_DESC_FILL_MODE,
    CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE = 10,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12,
    CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26
};
enum cublasLtMatrixLayoutAttribute_t {
    CUBLASLT_MATRIX_LAYOUT_TYPE, CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_MATRIX_LAYOUT_ROWS, CUBLASLT_MATRIX_LAYOUT_COLS,
    CUBLASLT_MATRIX_LAYOUT_LD, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET
};
enum cublasLtMatmulPreferenceAttributes_t {
    CUBLASLT_MATMUL_PREF_SEARCH_MODE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
};
struct hw4_lt_product {
    cublasComputeType_t compute;
    cudaDataType scale;
    cublasLtPointerMode_t pointers = CUBLASLT_POINTER_MODE_HOST;
    cublasOperation_t a_op = CUBLAS_OP_N, b_op = CUBLAS_OP_N;
    cublasLtEpilogue_t last = CUBLASLT_EPILOGUE_DEFAULT;
    void *bias = nullptr, *aux = nullptr;
    long long aux_rows = 0;
    int bias_type = -1;  // of the output, unless it is said
};
struct hw4_lt_layout {
    cudaDataType type;
    uint64_t rows, columns;
    long long ld;
    cublasLtOrder_t order = CUBLASLT_ORDER_COL;
    int batches = 1;
    long long stride = 0;
};
typedef hw4_lt_product* cublasLtMatmulDesc_t;
typedef hw4_lt_layout* cublasLtMatrixLayout_t;
typedef struct hw4_lt_preference { size_t workspace = 0; }* cublasLtMatmulPreference_t;
struct cublasLtMatmulAlgo_t { uint64_t data[8]; };
struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
};
namespace hw4 {
namespace blas {
cublasStatus_t set(hw4_lt_product&, cublasLtMatmulDescAttributes_t, const void* value, size_t bytes, Place);
cublasStatus_t set(hw4_lt_layout&, cublasLtMatrixLayoutAttribute_t, const void* value, size_t bytes);
cublasStatus_t multiply(Place, const hw4_lt_product&, const void* alpha, const void* a, const hw4_lt_layout&, const void* b,
                        const hw4_lt_layout&, const void* beta, const void* c, const hw4_lt_layout&, void* d,
                        const hw4_lt_layout&);
}  // namespace blas
}  // namespace hw4

inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return cublasCreate(handle); }
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return cublasDestroy(handle); }
inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* p, cublasComputeType_t compute, cudaDataType scale) {
    return *p = new hw4_lt_product{compute, scale}, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t p) { return delete p, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t p, cublasLtMatmulDescAttributes_t which,
                                                     const void* value, size_t bytes, HW4_FROM) {
    return hw4::blas::set(*p, which, value, bytes, from);
}
inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* p, cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t ld) {
    return *p = new hw4_lt_layout{type, rows, columns, ld}, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t p) { return delete p, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t p, cublasLtMatrixLayoutAttribute_t which,
                                                       const void* value, size_t bytes) {
    return hw4::blas::set(*p, which, value, bytes);
}
inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
    return *p = new hw4_lt_preference, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    return delete p, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                           const void*, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatmulPreference_t, int most,
                                                     cublasLtMatmulHeuristicResult_t* found, int* n) {
    *n = most > 0;
    if (*n) *found = {{}, 0, CUBLAS_STATUS_SUCCESS, 1, {}};
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t p, const void* alpha, const void* a,
                                     cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                                     const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                                     cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*, void*, size_t,
                                     cudaStream_t, HW4_FROM) {
    return hw4::blas::multiply(from, *p, alpha, a, *a_layout, b, *b_layout, beta, c, *c_layout, d, *d_layout);
}
