// Stands in for CUDA's header: products of a warp's matrices (nvcuda::wmma). Lane l has the elements from l * n / 32 on,
// in rows: which lane has which is nobody's business.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda {
namespace wmma {
struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
struct u4;
struct s4;
struct b1;
}
namespace experimental {
namespace precision {
struct u4;
struct s4;
struct b1;
}
}
template <class T> struct Stored { typedef T type; };
template <> struct Stored<precision::tf32> { typedef float type; };

template <class Use, int M, int N, int K> struct Extent;
template <int M, int N, int K> struct Extent<matrix_a, M, N, K> { static constexpr int rows = M, columns = K; };
template <int M, int N, int K> struct Extent<matrix_b, M, N, K> { static constexpr int rows = K, columns = N; };
template <int M, int N, int K> struct Extent<accumulator, M, N, K> { static constexpr int rows = M, columns = N; };

template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
    typedef typename Stored<T>::type element_type;
    typedef element_type storage_element_type;
    static constexpr int rows = Extent<Use, M, N, K>::rows, columns = Extent<Use, M, N, K>::columns;
    static constexpr int num_elements = rows * columns / 32, num_storage_elements = num_elements;
    element_type x[num_elements];
};
template <class F, class V> inline void fill_fragment(F& f, const V& value) {
    for (int i = 0; i < F::num_elements; i++) f.x[i] = (typename F::element_type)value;
}
namespace {
inline bool is_column_major(const col_major*) { return true; }
inline bool is_column_major(const row_major*) { return false; }
}
template <class T> inline void check_place(const char* what, const T* p, unsigned ldm, const char* file, int line) {
    const char* slash = strrchr(file, '/');
    char text[200];
    if ((uintptr_t)p % 32) {
        snprintf(text, sizeof text, "%s (%s:%d) takes an address that is a multiple of 32", what, slash ? slash + 1 : file, line);
        emu::report("misaligned", text);
    } else if (ldm * sizeof(T) % 16) {
        snprintf(text, sizeof text, "%s (%s:%d) takes rows that are a multiple of 16 bytes apart", what, slash ? slash + 1 : file, line);
        emu::report("misaligned", text);
    }
}
template <class F, class T> inline void move_in(F& f, const T* p, unsigned ldm, bool column_major) {
    for (int i = 0; i < F::num_elements; i++) {
        const int at = emu::lane() * F::num_elements + i, row = at / F::columns, column = at % F::columns;
        f.x[i] = (typename F::element_type)p[column_major ? (size_t)column * ldm + row : (size_t)row * ldm + column];
    }
}
inline void together(void* const*, int) {}
template <class Use, int M, int N, int K, class T, class Layout, class P>
inline void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const P* p, unsigned ldm, EMU_HERE) {
    check_place("load_matrix_sync", p, ldm, emu_file, emu_line);
    emu::meet(EMU_SITE("load_matrix_sync"), emu::WARP, ~0ull, nullptr, together);
    move_in(f, p, ldm, is_column_major((const Layout*)nullptr));
}
template <int M, int N, int K, class T, class P>
inline void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const P* p, unsigned ldm, layout_t layout, EMU_HERE) {
    check_place("load_matrix_sync", p, ldm, emu_file, emu_line);
    emu::meet(EMU_SITE("load_matrix_sync"), emu::WARP, ~0ull, nullptr, together);
    move_in(f, p, ldm, layout == mem_col_major);
}
template <int M, int N, int K, class T, class P>
inline void store_matrix_sync(P* p, const fragment<accumulator, M, N, K, T>& f, unsigned ldm, layout_t layout, EMU_HERE) {
    typedef fragment<accumulator, M, N, K, T> F;
    check_place("store_matrix_sync", p, ldm, emu_file, emu_line);
    emu::meet(EMU_SITE("store_matrix_sync"), emu::WARP, ~0ull, nullptr, together);
    for (int i = 0; i < F::num_elements; i++) {
        const int at = emu::lane() * F::num_elements + i, row = at / F::columns, column = at % F::columns;
        p[layout == mem_col_major ? (size_t)column * ldm + row : (size_t)row * ldm + column] = f.x[i];
    }
}
inline float __float_to_tf32(float x) {
    return emu::from_bits((emu::bits(x) + 0xfff + (emu::bits(x) >> 13 & 1)) & 0xffffe000u);
}
template <class A, class B, class C, class D> struct Product {
    const A* a;
    const B* b;
    const C* c;
    D* d;
    static void all(void* const* lane, int) {
        const auto of = [&](int l) -> Product& { return *(Product*)lane[l]; };
        constexpr int M = A::rows, K = A::columns, N = B::columns;
        constexpr bool whole = std::is_integral<typename D::element_type>::value;
        static typename D::element_type sums[M * N];
        for (int m = 0; m < M; m++)
            for (int n = 0; n < N; n++) {
                const int at = m * N + n;
                const auto c = of(at / C::num_elements).c->x[at % C::num_elements];
                typename std::conditional<whole, long long, double>::type sum = c;
                for (int k = 0; k < K; k++) {
                    const int i = m * K + k, j = k * N + n;
                    const auto x = of(i / A::num_elements).a->x[i % A::num_elements];
                    const auto y = of(j / B::num_elements).b->x[j % B::num_elements];
                    if constexpr (whole) sum += (long long)x * y;
                    else if constexpr (std::is_same<decltype(x), const float>::value)  // tf32: 10 bits of the mantissa
                        sum += (double)emu::from_bits(emu::bits(x) & 0xffffe000u) * emu::from_bits(emu::bits(y) & 0xffffe000u);
                    else sum += (double)x * (double)y;
                }
                if constexpr (whole) sums[at] = (typename D::element_type)sum;
                else sums[at] = (typename D::element_type)(float)sum;
            }
        for (int at = 0; at < M * N; at++) of(at / D::num_elements).d->x[at % D::num_elements] = sums[at];
    }
};
template <class D, class A, class B, class C> inline void mma_sync(D& d, const A& a, const B& b, const C& c, EMU_HERE) {
    Product<A, B, C, D> mine{&a, &b, &c, &d};
    emu::meet(EMU_SITE("mma_sync"), emu::WARP, ~0ull, &mine, Product<A, B, C, D>::all);
}
}  // namespace wmma
}  // namespace nvcuda
