// cuBLAS: what include/cublas_v2.h and cublasLt.h declare, by plain loops on the GPU's memory.
#include "../session.h"
#include "../include/cublasLt.h"

#include <complex>
#include <vector>

namespace hw4 {
namespace blas {
typedef std::complex<float> Complex;
typedef std::complex<double> DoubleComplex;

static size_t size_of(cudaDataType type) {
    switch (type) {
    case CUDA_R_8I: case CUDA_R_8U: return 1;
    case CUDA_R_16F: case CUDA_R_16BF: return 2;
    case CUDA_R_64F: case CUDA_C_32F: return 8;
    case CUDA_C_64F: return 16;
    default: return 4;
    }
}
// A number of a type as one of the computation's type, and back, rounded once.
template <class T> static T loaded(cudaDataType type, const char* at) {
    switch (type) {
    case CUDA_R_32F: return T(*(const float*)at);
    case CUDA_R_64F: return T(*(const double*)at);
    case CUDA_R_16F: return T((float)*(const __half*)at);
    case CUDA_R_16BF: return T((float)*(const __nv_bfloat16*)at);
    case CUDA_R_8I: return T(*(const int8_t*)at);
    case CUDA_R_8U: return T(*(const uint8_t*)at);
    case CUDA_R_32I: return T(*(const int*)at);
    default:
        if constexpr (std::is_same_v<T, Complex>) return type == CUDA_C_32F ? *(const Complex*)at : T();
        if constexpr (std::is_same_v<T, DoubleComplex>)
            return type == CUDA_C_64F ? *(const DoubleComplex*)at : DoubleComplex(*(const Complex*)at);
        return T();
    }
}
template <class T> static void store(cudaDataType type, char* at, T x) {
    if constexpr (std::is_same_v<T, Complex> || std::is_same_v<T, DoubleComplex>) {
        if (type == CUDA_C_32F) *(Complex*)at = Complex((float)x.real(), (float)x.imag());
        else *(DoubleComplex*)at = DoubleComplex(x.real(), x.imag());
    } else {
        switch (type) {
        case CUDA_R_64F: *(double*)at = (double)x; break;
        case CUDA_R_16F: *(__half*)at = __half((float)x); break;
        case CUDA_R_16BF: *(__nv_bfloat16*)at = __nv_bfloat16((float)x); break;
        case CUDA_R_8I: *(int8_t*)at = (int8_t)std::min(127.f, std::max(-128.f, nearbyintf((float)x))); break;
        case CUDA_R_32I: *(int*)at = (int)x; break;
        default: *(float*)at = (float)x;
        }
    }
}
template <class T> static T conjugate(T x) {
    if constexpr (std::is_same_v<T, Complex> || std::is_same_v<T, DoubleComplex>) return std::conj(x);
    return x;
}
template <class T> static T fused(T x, T y, T sum) {
    if constexpr (std::is_floating_point_v<T>) return std::fma(x, y, sum);
    if constexpr (std::is_same_v<T, int>) return (int)((unsigned)x * (unsigned)y + (unsigned)sum);
    return x * y + sum;
}

static std::string where(const Call& call) { return std::string(call.what) + " at " + text_of(call.from); }
static cublasStatus_t refused(const Call& call, const char* why, cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE) {
    say("library", "%s refuses what it is given: %s", where(call).c_str(), why);
    return status;
}
static bool on_device(const Call& call) { return call.handle && call.handle->pointers == CUBLAS_POINTER_MODE_DEVICE; }
// A number that a call is given, or gives, by a pointer to the host's memory or the GPU's.
template <class T> static bool scalar(const Call& call, cudaDataType type, const void* at, T& x) {
    if (!at || (on_device(call) && !touched_by_library(at, size_of(type), false, where(call)))) return false;
    return x = loaded<T>(type, (const char*)at), true;
}

// ---- Products of matrices

// The elements of one matrix of a batch that count, `down` in a column.
template <class T>
static bool read(const Call& call, const Matrix& a, const char* at, long long down, long long across, std::vector<T>& to) {
    const std::string words = where(call);
    const size_t size = size_of(a.type);
    to.resize((size_t)(down * across));
    for (long long j = 0; j < across; j++) {
        const char* column = at + (size_t)(j * a.rows) * size;
        if (!touched_by_library(column, (size_t)down * size, false, words)) return false;
        for (long long i = 0; i < down; i++) to[(size_t)(j * down + i)] = loaded<T>(a.type, column + (size_t)i * size);
    }
    return true;
}
static const char* batch_of(const Call& call, const Matrix& a, long long batch) {
    if (!a.listed) return (const char*)a.at + (size_t)(batch * a.stride) * size_of(a.type);
    const void* const* listed = (const void* const*)a.at + batch;
    return touched_by_library(listed, sizeof *listed, false, where(call)) ? (const char*)*listed : nullptr;
}
static float gelu(float x) { return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x))); }
template <class T> static cublasStatus_t multiplied(const Call& call, const Product& p) {
    T alpha{}, beta{};
    if (!scalar(call, p.scale, p.alpha, alpha) || !scalar(call, p.scale, p.beta, beta)) return CUBLAS_STATUS_INVALID_VALUE;
    const long long m = p.m, n = p.n, k = p.k;
    const bool a_is = p.a_op == CUBLAS_OP_N, b_is = p.b_op == CUBLAS_OP_N;
    const std::string words = where(call);
    std::vector<T> a, b, c, sums((size_t)m), bias;
    for (long long batch = 0; batch < p.batches; batch++) {
        const char *a_at = batch_of(call, p.a, batch), *b_at = batch_of(call, p.b, batch);
        const char *c_at = batch_of(call, p.c, batch), *d_at = batch_of(call, p.d, batch);
        if (!d_at || (alpha != T() && k && (!a_at || !b_at))) return CUBLAS_STATUS_EXECUTION_FAILED;
        const bool summed = alpha != T() && k;  // else they are not read
        if (summed && (!read(call, p.a, a_at, a_is ? m : k, a_is ? k : m, a) ||
                       !read(call, p.b, b_at, b_is ? k : n, b_is ? n : k, b)))
            return CUBLAS_STATUS_EXECUTION_FAILED;
        if (beta != T() && (!c_at || !read(call, p.c, c_at, m, n, c))) return CUBLAS_STATUS_EXECUTION_FAILED;
        if (p.bias.at && !read(call, p.bias, batch_of(call, p.bias, batch), m, 1, bias)) return CUBLAS_STATUS_EXECUTION_FAILED;
        if (summed && !a_is) {  // by columns of what is multiplied, too
            std::vector<T> turned((size_t)(m * k));
            for (long long i = 0; i < m; i++)
                for (long long l = 0; l < k; l++) {
                    const T x = a[(size_t)(i * k + l)];
                    turned[(size_t)(l * m + i)] = p.a_op == CUBLAS_OP_C ? conjugate(x) : x;
                }
            a.swap(turned);
        }
        for (long long j = 0; j < n; j++) {
            std::fill(sums.begin(), sums.end(), T());
            for (long long l = 0; summed && l < k; l++) {
                T y = b[(size_t)(b_is ? j * k + l : l * n + j)];
                if (p.b_op == CUBLAS_OP_C) y = conjugate(y);
                const T* x = &a[(size_t)(l * m)];
                for (long long i = 0; i < m; i++) sums[(size_t)i] = fused(x[i], y, sums[(size_t)i]);
            }
            const size_t size = size_of(p.d.type);
            char* column = (char*)d_at + (size_t)(j * p.d.rows) * size;
            if (!touched_by_library(column, (size_t)m * size, true, words)) return CUBLAS_STATUS_EXECUTION_FAILED;
            char* aux = nullptr;
            if (p.aux.at) {
                aux = (char*)batch_of(call, p.aux, batch) + (size_t)(j * p.aux.rows) * size_of(p.aux.type);
                if (!touched_by_library(aux, (size_t)m * size_of(p.aux.type), true, words)) return CUBLAS_STATUS_EXECUTION_FAILED;
            }
            for (long long i = 0; i < m; i++) {
                T x = alpha * sums[(size_t)i];
                if (beta != T()) x = fused(beta, c[(size_t)(j * m + i)], x);
                if (p.bias.at) x += bias[(size_t)i];
                if (aux) store(p.aux.type, aux + (size_t)i * size_of(p.aux.type), x);
                if constexpr (std::is_same_v<T, float>)
                    x = p.last == Last::RELU ? std::max(x, 0.f) : p.last == Last::GELU ? gelu(x) : x;
                store(p.d.type, column + (size_t)i * size, x);
            }
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t multiply(const Call& call, const Product& p) {
    begin();
    const std::lock_guard<std::recursive_mutex> alone(one_at_a_time());
    if (!call.handle) return refused(call, "no handle that cublasCreate has made", CUBLAS_STATUS_NOT_INITIALIZED);
    if (p.m < 0 || p.n < 0 || p.k < 0 || p.batches < 0) return refused(call, "a size is negative");
    char text[160];
    const struct { const char* name; const Matrix& of; long long rows; } matrices[] = {
        {"A", p.a, p.a_op == CUBLAS_OP_N ? p.m : p.k}, {"B", p.b, p.b_op == CUBLAS_OP_N ? p.k : p.n}, {"C", p.c, p.m},
        {"D", p.d, p.m}};
    for (const auto& one : matrices)
        if (one.of.rows < std::max(one.rows, 1ll)) {
            snprintf(text, sizeof text, "%s has %lld rows, and its leading dimension is %lld", one.name, one.rows, one.of.rows);
            return refused(call, text);
        }
    if (!p.m || !p.n || !p.batches) return CUBLAS_STATUS_SUCCESS;
    switch (p.compute) {
    case CUBLAS_COMPUTE_64F: case CUBLAS_COMPUTE_64F_PEDANTIC:
        return p.scale == CUDA_C_64F ? multiplied<DoubleComplex>(call, p) : multiplied<double>(call, p);
    case CUBLAS_COMPUTE_32I: case CUBLAS_COMPUTE_32I_PEDANTIC:
        return p.scale == CUDA_R_32I ? multiplied<int>(call, p) : multiplied<float>(call, p);
    default: return p.scale == CUDA_C_32F ? multiplied<Complex>(call, p) : multiplied<float>(call, p);
    }
}

// ---- cuBLASLt

cublasStatus_t set(hw4_lt_product& p, cublasLtMatmulDescAttributes_t which, const void* value, size_t bytes, Place from) {
    auto take = [&](auto& to) { return bytes >= sizeof to ? memcpy(&to, value, sizeof to), true : false; };
    bool taken = false;
    switch (which) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: taken = take(p.compute); break;
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE: taken = take(p.scale); break;
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: taken = take(p.pointers); break;
    case CUBLASLT_MATMUL_DESC_TRANSA: taken = take(p.a_op); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: taken = take(p.b_op); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: taken = take(p.last); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: taken = take(p.bias); break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: taken = take(p.bias_type); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: taken = take(p.aux); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: taken = take(p.aux_rows); break;
    default:
        return refused({"cublasLtMatmulDescSetAttribute", from, nullptr}, "an attribute that is not there on the CPU",
                       CUBLAS_STATUS_NOT_SUPPORTED);
    }
    return taken ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t set(hw4_lt_layout& a, cublasLtMatrixLayoutAttribute_t which, const void* value, size_t bytes) {
    auto take = [&](auto& to) { return bytes >= sizeof to ? memcpy(&to, value, sizeof to), true : false; };
    bool taken = false;
    switch (which) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: taken = take(a.type); break;
    case CUBLASLT_MATRIX_LAYOUT_ORDER: taken = take(a.order); break;
    case CUBLASLT_MATRIX_LAYOUT_ROWS: taken = take(a.rows); break;
    case CUBLASLT_MATRIX_LAYOUT_COLS: taken = take(a.columns); break;
    case CUBLASLT_MATRIX_LAYOUT_LD: taken = take(a.ld); break;
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: taken = take(a.batches); break;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: taken = take(a.stride); break;
    }
    return taken ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t multiply(Place from, const hw4_lt_product& p, const void* alpha, const void* a, const hw4_lt_layout& a_has,
                        const void* b, const hw4_lt_layout& b_has, const void* beta, const void* c,
                        const hw4_lt_layout& c_has, void* d, const hw4_lt_layout& d_has) {
    cublasContext handle;
    handle.pointers = p.pointers == CUBLASLT_POINTER_MODE_DEVICE ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST;
    const Call call{"cublasLtMatmul", from, &handle};
    for (const hw4_lt_layout* one : {&a_has, &b_has, &c_has, &d_has})
        if (one->order != CUBLASLT_ORDER_COL)
            return refused(call, "a matrix that is not by columns, which is not there on the CPU", CUBLAS_STATUS_NOT_SUPPORTED);
    const bool a_is = p.a_op == CUBLAS_OP_N, b_is = p.b_op == CUBLAS_OP_N;
    const uint64_t m = a_is ? a_has.rows : a_has.columns, k = a_is ? a_has.columns : a_has.rows;
    const uint64_t n = b_is ? b_has.columns : b_has.rows, k_of_b = b_is ? b_has.rows : b_has.columns;
    if (k != k_of_b || d_has.rows != m || d_has.columns != n) return refused(call, "matrices whose sizes do not fit");
    auto matrix = [](const void* at, const hw4_lt_layout& has) { return Matrix{at, has.type, has.ld, has.stride}; };
    Product product{p.a_op, p.b_op, (long long)m, (long long)n, (long long)k, alpha, matrix(a, a_has), matrix(b, b_has),
                    beta, matrix(c, c_has), matrix(d, d_has), p.compute, p.scale, d_has.batches};
    const int last = p.last & ~(CUBLASLT_EPILOGUE_BIAS | 128);
    if (p.last & (CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB) || (p.last & 192) == 192 || (p.last & 8))
        return refused(call, "an epilogue of gradients, which is not there on the CPU", CUBLAS_STATUS_NOT_SUPPORTED);
    product.last = last == CUBLASLT_EPILOGUE_RELU ? Last::RELU : last == CUBLASLT_EPILOGUE_GELU ? Last::GELU : Last::NOTHING;
    if (p.last & CUBLASLT_EPILOGUE_BIAS) {
        if (!p.bias) return refused(call, "a bias without a pointer to it");
        product.bias = {p.bias, p.bias_type < 0 ? d_has.type : (cudaDataType)p.bias_type, (long long)m};
    }
    if (p.last & 128) {
        if (product.last != Last::GELU || !p.aux)
            return refused(call, "what is kept before ReLU, or no pointer to where", CUBLAS_STATUS_NOT_SUPPORTED);
        product.aux = {p.aux, d_has.type, p.aux_rows};
    }
    return multiply(call, product);
}

// ---- Vectors

// A vector's first element in memory: a negative step begins at its end.
template <class T> static T* begin_of(const Vector& x, int n) { return (T*)x.at + (x.step < 0 ? (long long)(1 - n) * x.step : 0); }
static bool touch(const Call& call, const Vector& x, int n, size_t size, bool write) {
    const std::string words = where(call);
    const long long step = std::abs((long long)x.step);
    if (step == 1) return n <= 0 || touched_by_library(x.at, (size_t)n * size, write, words);
    for (long long i = 0; i < n; i++)
        if (!touched_by_library((const char*)x.at + (size_t)(i * step) * size, size, write, words)) return false;
    return true;
}
static bool results(const Call& call, void* at, size_t size) {
    return at && (!on_device(call) || touched_by_library(at, size, true, where(call)));
}
template <class T>
static cublasStatus_t vectors_of(const Call& call, Work work, int n, const void* alpha, const Vector& xs, const Vector& ys,
                                 void* result) {
    constexpr cudaDataType type = sizeof(T) == 8 ? CUDA_R_64F : CUDA_R_32F;
    T factor{};
    if ((work == AXPY || work == SCAL) && !scalar(call, type, alpha, factor)) return CUBLAS_STATUS_INVALID_VALUE;
    const bool two = work == AXPY || work == COPY || work == SWAP || work == DOT;
    const bool gives = work >= DOT, reads_y = work == AXPY || work == SWAP || work == DOT;
    if (gives && !results(call, result, work >= AMAX ? sizeof(int) : sizeof(T))) return CUBLAS_STATUS_INVALID_VALUE;
    if (!touch(call, xs, n, sizeof(T), false) || (two && reads_y && !touch(call, ys, n, sizeof(T), false)) ||
        ((work == SCAL || work == SWAP) && !touch(call, xs, n, sizeof(T), true)) ||
        (two && work != DOT && !touch(call, ys, n, sizeof(T), true)))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    T *x = begin_of<T>(xs, n), *y = begin_of<T>(ys, n);
    T sum = 0, best = 0;
    int at = 0;
    for (int i = 0; i < n; i++, x += xs.step, y += ys.step) {
        switch (work) {
        case AXPY: *y = std::fma(factor, *x, *y); break;
        case SCAL: *x *= factor; break;
        case COPY: *y = *x; break;
        case SWAP: std::swap(*x, *y); break;
        case DOT: sum = std::fma(*x, *y, sum); break;
        case NRM2: sum = std::fma(*x, *x, sum); break;
        case ASUM: sum += std::abs(*x); break;
        default:
            if (!at || (work == AMAX ? std::abs(*x) > best : std::abs(*x) < best)) best = std::abs(*x), at = i + 1;
        }
    }
    if (gives && work < AMAX) *(T*)result = work == NRM2 ? std::sqrt(sum) : sum;
    if (work >= AMAX) *(int*)result = at;
    return CUBLAS_STATUS_SUCCESS;
}
#define ALONE                                                                                                    \
    begin();                                                                                                     \
    const std::lock_guard<std::recursive_mutex> alone(one_at_a_time());                                          \
    if (!call.handle) return refused(call, "no handle that cublasCreate has made", CUBLAS_STATUS_NOT_INITIALIZED)
cublasStatus_t vectors(const Call& call, Work work, bool is_double, int n, const void* alpha, Vector x, Vector y,
                       void* result) {
    ALONE;
    if (n < 0) return refused(call, "a size is negative");
    return is_double ? vectors_of<double>(call, work, n, alpha, x, y, result)
                     : vectors_of<float>(call, work, n, alpha, x, y, result);
}
template <class T>
static cublasStatus_t typed(const Call& call, Work work, int n, const void* alpha, cudaDataType alpha_type, const Typed& x,
                            const Typed& y, void* result, cudaDataType result_type) {
    T factor{}, sum{};
    if ((work == AXPY || work == SCAL) && !scalar(call, alpha_type, alpha, factor)) return CUBLAS_STATUS_INVALID_VALUE;
    if (work >= DOT && !results(call, result, size_of(result_type))) return CUBLAS_STATUS_INVALID_VALUE;
    auto looked_at = [&](const Typed& v, bool write) { return touch(call, {v.at, v.step}, n, size_of(v.type), write); };
    if (!looked_at(x, false) || ((work == AXPY || work == DOT) && !looked_at(y, false)) || (work == SCAL && !looked_at(x, true)) ||
        (work == AXPY && !looked_at(y, true)))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    auto at = [n](const Typed& v, int i) {
        return (char*)v.at + (size_t)(v.step < 0 ? (long long)(i + 1 - n) * v.step : (long long)i * v.step) * size_of(v.type);
    };
    for (int i = 0; i < n; i++) {
        const T a = loaded<T>(x.type, at(x, i)), b = work == AXPY || work == DOT ? loaded<T>(y.type, at(y, i)) : a;
        if (work == AXPY) store(y.type, at(y, i), fused(factor, a, b));
        else if (work == SCAL) store(x.type, at(x, i), factor * a);
        else sum = fused(a, b, sum);
    }
    if (work >= DOT) store(result_type, (char*)result, work == NRM2 ? std::sqrt(sum) : sum);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t typed_vectors(const Call& call, Work work, int n, const void* alpha, cudaDataType alpha_type, Typed x, Typed y,
                             void* result, cudaDataType result_type) {
    ALONE;
    if (n < 0) return refused(call, "a size is negative");
    const bool in_double = x.type == CUDA_R_64F || y.type == CUDA_R_64F || result_type == CUDA_R_64F;
    return in_double ? typed<double>(call, work, n, alpha, alpha_type, x, y, result, result_type)
                     : typed<float>(call, work, n, alpha, alpha_type, x, y, result, result_type);
}
template <class T>
static cublasStatus_t times_vector(const Call& call, cublasOperation_t op, int m, int n, const void* alpha_at, const Matrix& a,
                                   const Vector& xs, const void* beta_at, const Vector& ys) {
    T alpha{}, beta{};
    std::vector<T> all;
    const int down = op == CUBLAS_OP_N ? m : n, across = op == CUBLAS_OP_N ? n : m;  // of y, of x
    if (!scalar(call, a.type, alpha_at, alpha) || !scalar(call, a.type, beta_at, beta)) return CUBLAS_STATUS_INVALID_VALUE;
    if ((alpha != 0 && (!read(call, a, (const char*)a.at, m, n, all) || !touch(call, xs, across, sizeof(T), false))) ||
        (beta != 0 && !touch(call, ys, down, sizeof(T), false)) || !touch(call, ys, down, sizeof(T), true))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    T* y = begin_of<T>(ys, down);
    for (int i = 0; i < down; i++, y += ys.step) {
        T sum = 0, *x = begin_of<T>(xs, across);
        for (int j = 0; alpha != 0 && j < across; j++, x += xs.step)
            sum = std::fma(all[op == CUBLAS_OP_N ? (size_t)j * m + i : (size_t)i * m + j], *x, sum);
        *y = beta != 0 ? std::fma(beta, *y, alpha * sum) : alpha * sum;
    }
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t multiply_vector(const Call& call, bool is_double, cublasOperation_t op, int m, int n, const void* alpha,
                               Matrix a, Vector x, const void* beta, Vector y) {
    ALONE;
    if (m < 0 || n < 0 || a.rows < std::max(m, 1) || !x.step || !y.step)
        return refused(call, "a negative size, a leading dimension below m, or a step of 0");
    return is_double ? times_vector<double>(call, op, m, n, alpha, a, x, beta, y)
                     : times_vector<float>(call, op, m, n, alpha, a, x, beta, y);
}
template <class T>
static cublasStatus_t outer(const Call& call, int m, int n, const void* alpha_at, const Vector& xs, const Vector& ys,
                            const Matrix& a) {
    T alpha{};
    if (!scalar(call, a.type, alpha_at, alpha)) return CUBLAS_STATUS_INVALID_VALUE;
    std::vector<T> all;
    if (!touch(call, xs, m, sizeof(T), false) || !touch(call, ys, n, sizeof(T), false) || !read(call, a, (const char*)a.at, m, n, all))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    const T* y = begin_of<T>(ys, n);
    for (int j = 0; j < n; j++, y += ys.step) {
        T* column = (T*)a.at + (size_t)j * a.rows;
        if (!touched_by_library(column, (size_t)m * sizeof(T), true, where(call))) return CUBLAS_STATUS_EXECUTION_FAILED;
        const T* x = begin_of<T>(xs, m);
        for (int i = 0; i < m; i++, x += xs.step) column[i] = std::fma(alpha * *x, *y, column[i]);
    }
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t add_outer(const Call& call, bool is_double, int m, int n, const void* alpha, Vector x, Vector y, Matrix a) {
    ALONE;
    if (m < 0 || n < 0 || a.rows < std::max(m, 1)) return refused(call, "a negative size, or a leading dimension below m");
    return is_double ? outer<double>(call, m, n, alpha, x, y, a) : outer<float>(call, m, n, alpha, x, y, a);
}
template <class T>
static cublasStatus_t added(const Call& call, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, const void* alpha_at,
                            const Matrix& a, const void* beta_at, const Matrix& b, const Matrix& c) {
    T alpha{}, beta{};
    if (!scalar(call, c.type, alpha_at, alpha) || !scalar(call, c.type, beta_at, beta)) return CUBLAS_STATUS_INVALID_VALUE;
    const bool a_is = a_op == CUBLAS_OP_N, b_is = b_op == CUBLAS_OP_N;
    std::vector<T> x, y;
    if ((alpha != 0 && !read(call, a, (const char*)a.at, a_is ? m : n, a_is ? n : m, x)) ||
        (beta != 0 && !read(call, b, (const char*)b.at, b_is ? m : n, b_is ? n : m, y)))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    for (int j = 0; j < n; j++) {
        T* column = (T*)c.at + (size_t)j * c.rows;
        if (!touched_by_library(column, (size_t)m * sizeof(T), true, where(call))) return CUBLAS_STATUS_EXECUTION_FAILED;
        for (int i = 0; i < m; i++) {
            T sum = alpha != 0 ? alpha * x[a_is ? (size_t)j * m + i : (size_t)i * n + j] : 0;
            if (beta != 0) sum = std::fma(beta, y[b_is ? (size_t)j * m + i : (size_t)i * n + j], sum);
            column[i] = sum;
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t add(const Call& call, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, const void* alpha, Matrix a,
                   const void* beta, Matrix b, Matrix c) {
    ALONE;
    if (m < 0 || n < 0 || c.rows < std::max(m, 1) || a.rows < std::max(a_op == CUBLAS_OP_N ? m : n, 1) ||
        b.rows < std::max(b_op == CUBLAS_OP_N ? m : n, 1))
        return refused(call, "a negative size, or a leading dimension below the rows");
    return c.type == CUDA_R_64F ? added<double>(call, a_op, b_op, m, n, alpha, a, beta, b, c)
                                : added<float>(call, a_op, b_op, m, n, alpha, a, beta, b, c);
}
cublasStatus_t copy_matrix(const Call& call, int rows, int columns, int bytes, const void* src, int src_rows, void* to,
                           int to_rows, cudaMemcpyKind kind) {
    if (rows < 0 || columns < 0 || bytes <= 0 || src_rows < rows || to_rows < rows)
        return refused(call, "a negative size, or a leading dimension below the rows");
    for (int j = 0; j < columns; j++) {
        const char* column = (const char*)src + (size_t)j * src_rows * bytes;
        if (copy(call.what, (char*)to + (size_t)j * to_rows * bytes, column, (size_t)rows * bytes, kind, call.from) != cudaSuccess)
            return CUBLAS_STATUS_MAPPING_ERROR;
    }
    return CUBLAS_STATUS_SUCCESS;
}
}  // namespace blas
}  // namespace hw4

#define STATUSES(X)                                                                                               \
    X(CUBLAS_STATUS_SUCCESS, "success") X(CUBLAS_STATUS_NOT_INITIALIZED, "the library was not initialized")       \
    X(CUBLAS_STATUS_ALLOC_FAILED, "the resource allocation failed")                                               \
    X(CUBLAS_STATUS_INVALID_VALUE, "an unsupported value or parameter was passed to the function")                \
    X(CUBLAS_STATUS_MAPPING_ERROR, "an access to GPU memory space failed")                                        \
    X(CUBLAS_STATUS_EXECUTION_FAILED, "the function failed to launch on the GPU")                                 \
    X(CUBLAS_STATUS_INTERNAL_ERROR, "an internal operation failed")                                               \
    X(CUBLAS_STATUS_NOT_SUPPORTED, "the functionality is not supported")
const char* cublasGetStatusString(cublasStatus_t status) {
    switch (status) {
#define STRING(name, text) case name: return text;
        STATUSES(STRING)
    default: return "unknown status";
    }
}
const char* cublasGetStatusName(cublasStatus_t status) {
    switch (status) {
#define NAME(name, text) case name: return #name;
        STATUSES(NAME)
    default: return "unknown status";
    }
}
