// Stands in for CUB: what warps and blocks do together, by real barriers on the storage that a program gives, and what
// the whole GPU does, by plain loops on its memory. What is not here is refused by its name.
#pragma once
#include "../../collectives.h"

#include <cstddef>
#include <iterator>
#include <type_traits>

#define CUB_RUNTIME_FUNCTION
#define CUB_VERSION 200200
#define CUB_MIN(a, b) ((a) < (b) ? (a) : (b))
#define CUB_MAX(a, b) ((a) > (b) ? (a) : (b))
#define CUB_ROUND_UP_NEAREST(a, b) (((a) + (b) - 1) / (b) * (b))
#define CUB_QUOTIENT_CEILING(a, b) (((a) + (b) - 1) / (b))
#define CUB_PTX_WARP_THREADS 32
// A finding names the line of the program that calls.
#define CUB_HERE inline __attribute__((always_inline))

namespace cub {
#define EMU_CUB_OPERATION(name, expression)                                                                  \
    struct name {                                                                                            \
        template <class T, class U> auto operator()(const T& a, const U& b) const { return expression; }     \
    };
EMU_CUB_OPERATION(Sum, a + b)
EMU_CUB_OPERATION(Difference, a - b)
EMU_CUB_OPERATION(Division, a / b)
EMU_CUB_OPERATION(Equality, a == b)
EMU_CUB_OPERATION(Inequality, !(a == b))
struct Max {
    template <class T> T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};
struct Min {
    template <class T> T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};
template <class K, class V> struct KeyValuePair {
    typedef K Key;
    typedef V Value;
    K key;
    V value;
    bool operator!=(const KeyValuePair& b) const { return value != b.value || key != b.key; }
};
// The pair with the largest, or smallest, value; of several the one with the smallest key.
struct ArgMax {
    template <class P> P operator()(const P& a, const P& b) const {
        return a.value < b.value || (!(b.value < a.value) && b.key < a.key) ? b : a;
    }
};
struct ArgMin {
    template <class P> P operator()(const P& a, const P& b) const {
        return b.value < a.value || (!(a.value < b.value) && b.key < a.key) ? b : a;
    }
};
struct NullType {};
struct CubVector {};
template <class T> struct DoubleBuffer {
    T* d_buffers[2];
    int selector = 0;
    DoubleBuffer() : d_buffers{} {}
    DoubleBuffer(T* current, T* other) : d_buffers{current, other} {}
    T* Current() { return d_buffers[selector]; }
    T* Alternate() { return d_buffers[selector ^ 1]; }
};
template <class T> struct Uninitialized {
    alignas(T) char bytes[sizeof(T)];
    T& Alias() { return *(T*)bytes; }
};
template <class T> inline void Swap(T& a, T& b) { std::swap(a, b); }
inline unsigned LaneId() { return (unsigned)emu::lane(); }
inline unsigned WarpId() { return emu::thread() / 32; }
inline int RowMajorTid(int x, int y, int) { return (int)((threadIdx.z * y + threadIdx.y) * x + threadIdx.x); }
template <int N> struct Log2 { enum { VALUE = N <= 1 ? 0 : 1 + Log2<(N + 1) / 2>::VALUE }; };
template <> struct Log2<1> { enum { VALUE = 0 }; };
template <> struct Log2<0> { enum { VALUE = 0 }; };

// ---- Iterators

#define EMU_CUB_ITERATOR(Self, T)                                                                            \
    typedef T value_type;                                                                                    \
    typedef T reference;                                                                                     \
    typedef T* pointer;                                                                                      \
    typedef ptrdiff_t difference_type;                                                                       \
    typedef std::random_access_iterator_tag iterator_category;                                               \
    T operator*() const { return (*this)[0]; }                                                               \
    Self& operator++() { return *this += 1; }                                                                \
    Self operator++(int) {                                                                                   \
        Self old = *this;                                                                                    \
        *this += 1;                                                                                          \
        return old;                                                                                          \
    }                                                                                                        \
    template <class N> Self operator+(N n) const {                                                           \
        Self other = *this;                                                                                  \
        return other += (ptrdiff_t)n;                                                                        \
    }                                                                                                        \
    template <class N> Self operator-(N n) const { return *this + -(ptrdiff_t)n; }
template <class T, class Offset = ptrdiff_t> struct CountingInputIterator {
    T at;
    CountingInputIterator(T at) : at(at) {}
    EMU_CUB_ITERATOR(CountingInputIterator, T)
    template <class N> T operator[](N n) const { return (T)(at + n); }
    CountingInputIterator& operator+=(ptrdiff_t n) { return at = (T)(at + n), *this; }
};
template <class T, class Offset = ptrdiff_t> struct ConstantInputIterator {
    T value;
    ConstantInputIterator(T value) : value(value) {}
    EMU_CUB_ITERATOR(ConstantInputIterator, T)
    template <class N> T operator[](N) const { return value; }
    ConstantInputIterator& operator+=(ptrdiff_t) { return *this; }
};
template <class T, class F, class In, class Offset = ptrdiff_t> struct TransformInputIterator {
    In in;
    F f;
    TransformInputIterator(In in, F f) : in(in), f(f) {}
    EMU_CUB_ITERATOR(TransformInputIterator, T)
    template <class N> T operator[](N n) const { return f(in[n]); }
    TransformInputIterator& operator+=(ptrdiff_t n) { return in += n, *this; }
};
template <class In, class Offset = ptrdiff_t, class V = typename std::iterator_traits<In>::value_type>
struct ArgIndexInputIterator {
    typedef KeyValuePair<Offset, V> Pair;
    In in;
    Offset at = 0;
    ArgIndexInputIterator(In in) : in(in) {}
    EMU_CUB_ITERATOR(ArgIndexInputIterator, Pair)
    template <class N> Pair operator[](N n) const { return {(Offset)(at + n), in[at + n]}; }
    ArgIndexInputIterator& operator+=(ptrdiff_t n) { return at += (Offset)n, *this; }
};
struct DiscardOutputIterator {
    struct Nothing {
        template <class T> const Nothing& operator=(const T&) const { return *this; }
    };
    template <class N> Nothing operator[](N) const { return {}; }
    Nothing operator*() const { return {}; }
    template <class N> DiscardOutputIterator operator+(N) const { return {}; }
};
enum CacheLoadModifier { LOAD_DEFAULT, LOAD_CA, LOAD_CG, LOAD_CS, LOAD_CV, LOAD_LDG, LOAD_VOLATILE };
enum CacheStoreModifier { STORE_DEFAULT, STORE_WB, STORE_CG, STORE_CS, STORE_WT, STORE_VOLATILE };
template <CacheLoadModifier, class T> CUB_HERE T ThreadLoad(const T* p) { return *p; }
template <CacheStoreModifier, class T> CUB_HERE void ThreadStore(T* p, T x) { *p = x; }
template <CacheLoadModifier, class T, class Offset = ptrdiff_t> using CacheModifiedInputIterator = const T*;
template <CacheStoreModifier, class T, class Offset = ptrdiff_t> using CacheModifiedOutputIterator = T*;

// ---- Threads

template <class T, int N, class F> CUB_HERE T ThreadReduce(T (&items)[N], F f) {
    T sum = items[0];
    for (int i = 1; i < N; i++) sum = f(sum, items[i]);
    return sum;
}
#define EMU_CUB_THREAD (int)emu::thread()
template <class T, int N, class In> CUB_HERE void LoadDirectBlocked(int t, In in, T (&items)[N]) {
    for (int i = 0; i < N; i++) items[i] = in[t * N + i];
}
template <class T, int N, class In> CUB_HERE void LoadDirectBlocked(int t, In in, T (&items)[N], int valid) {
    for (int i = 0; i < N; i++)
        if (t * N + i < valid) items[i] = in[t * N + i];
}
template <class T, int N, class In, class D> CUB_HERE void LoadDirectBlocked(int t, In in, T (&items)[N], int valid, D other) {
    for (int i = 0; i < N; i++) items[i] = t * N + i < valid ? (T)in[t * N + i] : (T)other;
}
template <int Threads, class T, int N, class In> CUB_HERE void LoadDirectStriped(int t, In in, T (&items)[N]) {
    for (int i = 0; i < N; i++) items[i] = in[i * Threads + t];
}
template <int Threads, class T, int N, class In> CUB_HERE void LoadDirectStriped(int t, In in, T (&items)[N], int valid) {
    for (int i = 0; i < N; i++)
        if (i * Threads + t < valid) items[i] = in[i * Threads + t];
}
template <int Threads, class T, int N, class In, class D>
CUB_HERE void LoadDirectStriped(int t, In in, T (&items)[N], int valid, D other) {
    for (int i = 0; i < N; i++) items[i] = i * Threads + t < valid ? (T)in[i * Threads + t] : (T)other;
}
template <class T, int N, class Out> CUB_HERE void StoreDirectBlocked(int t, Out out, T (&items)[N]) {
    for (int i = 0; i < N; i++) out[t * N + i] = items[i];
}
template <class T, int N, class Out> CUB_HERE void StoreDirectBlocked(int t, Out out, T (&items)[N], int valid) {
    for (int i = 0; i < N; i++)
        if (t * N + i < valid) out[t * N + i] = items[i];
}
template <int Threads, class T, int N, class Out> CUB_HERE void StoreDirectStriped(int t, Out out, T (&items)[N]) {
    for (int i = 0; i < N; i++) out[i * Threads + t] = items[i];
}
template <int Threads, class T, int N, class Out> CUB_HERE void StoreDirectStriped(int t, Out out, T (&items)[N], int valid) {
    for (int i = 0; i < N; i++)
        if (i * Threads + t < valid) out[i * Threads + t] = items[i];
}

// ---- Warps

template <class T, int Lanes = 32, int = 0> class WarpReduce {
public:
    struct TempStorage {};
    CUB_HERE WarpReduce(TempStorage&) {}
    // The first lane has the sum, of the first lanes that are valid.
    template <class F> CUB_HERE T Reduce(T x, F f, int valid = Lanes, EMU_HERE) {
        return hw4::together(EMU_SITE("cub::WarpReduce"), hw4::lanes_of_tile(Lanes), x, [&](T* values, int n) {
            hw4::reduce_to_first(values, std::min(n, valid), f);
        });
    }
    CUB_HERE T Sum(T x, int valid = Lanes, EMU_HERE) { return Reduce(x, cub::Sum(), valid, emu_file, emu_line); }
    CUB_HERE T Max(T x, int valid = Lanes, EMU_HERE) { return Reduce(x, cub::Max(), valid, emu_file, emu_line); }
    CUB_HERE T Min(T x, int valid = Lanes, EMU_HERE) { return Reduce(x, cub::Min(), valid, emu_file, emu_line); }
    template <int N, class F> CUB_HERE T Reduce(T (&items)[N], F f, EMU_HERE) {
        return Reduce(ThreadReduce(items, f), f, Lanes, emu_file, emu_line);
    }
    template <int N> CUB_HERE T Sum(T (&items)[N], EMU_HERE) { return Reduce(items, cub::Sum(), emu_file, emu_line); }
    // Segments begin at a flag, or end at one; the first lane of each has its sum.
    template <class Flag, class F> CUB_HERE T HeadSegmentedReduce(T x, Flag head, F f, EMU_HERE) {
        return segmented(EMU_SITE("cub::WarpReduce"), x, head, f, true);
    }
    template <class Flag, class F> CUB_HERE T TailSegmentedReduce(T x, Flag tail, F f, EMU_HERE) {
        return segmented(EMU_SITE("cub::WarpReduce"), x, tail, f, false);
    }
    template <class Flag> CUB_HERE T HeadSegmentedSum(T x, Flag head, EMU_HERE) {
        return segmented(EMU_SITE("cub::WarpReduce"), x, head, cub::Sum(), true);
    }
    template <class Flag> CUB_HERE T TailSegmentedSum(T x, Flag tail, EMU_HERE) {
        return segmented(EMU_SITE("cub::WarpReduce"), x, tail, cub::Sum(), false);
    }

private:
    struct Flagged {
        T value;
        bool flag;
    };
    template <class F> static T segmented(emu::Site site, T x, bool flag, const F& f, bool heads) {
        return hw4::together(site, hw4::lanes_of_tile(Lanes), Flagged{x, flag}, [&](Flagged* all, int n) {
            for (int begin = 0; begin < n;) {
                int end = begin + 1;
                while (end < n && !(heads ? all[end].flag : all[end - 1].flag)) end++;
                T sum = all[end - 1].value;
                for (int i = end - 2; i >= begin; i--) sum = f(all[i].value, sum);
                all[begin].value = sum, begin = end;
            }
        }).value;
    }
};
template <class T, int Lanes = 32, int = 0> class WarpScan {
public:
    struct TempStorage {};
    CUB_HERE WarpScan(TempStorage&) {}
    template <class F> CUB_HERE void InclusiveScan(T x, T& result, F f, EMU_HERE) {
        T sum;
        scan(EMU_SITE("cub::WarpScan"), x, f, result, sum);
    }
    template <class F> CUB_HERE void InclusiveScan(T x, T& result, F f, T& sum, EMU_HERE) {
        scan(EMU_SITE("cub::WarpScan"), x, f, result, sum);
    }
    CUB_HERE void InclusiveSum(T x, T& result, EMU_HERE) { InclusiveScan(x, result, cub::Sum(), emu_file, emu_line); }
    CUB_HERE void InclusiveSum(T x, T& result, T& sum, EMU_HERE) {
        scan(EMU_SITE("cub::WarpScan"), x, cub::Sum(), result, sum);
    }
    template <class F> CUB_HERE void ExclusiveScan(T x, T& result, T first, F f, EMU_HERE) {
        T sum;
        exclusive(EMU_SITE("cub::WarpScan"), x, first, f, result, sum);
    }
    template <class F> CUB_HERE void ExclusiveScan(T x, T& result, T first, F f, T& sum, EMU_HERE) {
        exclusive(EMU_SITE("cub::WarpScan"), x, first, f, result, sum);
    }
    CUB_HERE void ExclusiveSum(T x, T& result, EMU_HERE) { ExclusiveScan(x, result, T(), cub::Sum(), emu_file, emu_line); }
    CUB_HERE void ExclusiveSum(T x, T& result, T& sum, EMU_HERE) {
        exclusive(EMU_SITE("cub::WarpScan"), x, T(), cub::Sum(), result, sum);
    }
    CUB_HERE T Broadcast(T x, unsigned from, EMU_HERE) {
        return hw4::together(EMU_SITE("cub::WarpScan"), hw4::lanes_of_tile(Lanes), x, [&](T* values, int n) {
            const T one = values[from];
            for (int i = 0; i < n; i++) values[i] = one;
        });
    }

private:
    struct Both {
        T mine, before, all;
    };
    template <class F> static Both scanned(emu::Site site, T x, const F& f) {
        return hw4::together(site, hw4::lanes_of_tile(Lanes), Both{x, x, x}, [&](Both* lanes, int n) {
            T values[64];
            for (int i = 0; i < n; i++) values[i] = lanes[i].mine;
            hw4::scan_all(values, n, f);
            for (int i = 0; i < n; i++) lanes[i] = {values[i], values[i ? i - 1 : 0], values[n - 1]};
        });
    }
    template <class F> static void scan(emu::Site site, T x, const F& f, T& result, T& sum) {
        const Both found = scanned(site, x, f);
        result = found.mine, sum = found.all;
    }
    template <class F> static void exclusive(emu::Site site, T x, T first, const F& f, T& result, T& sum) {
        const Both found = scanned(site, x, f);
        result = emu::lane() % Lanes ? f(first, found.before) : first, sum = found.all;
    }
};

// ---- Blocks: values of warps, or of threads, lie in the storage. Who uses it again needs a __syncthreads() in between.

enum BlockReduceAlgorithm {
    BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS
};
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
template <class T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1, int = 0>
class BlockReduce {
    enum { THREADS = X * Y * Z, WARPS = (THREADS + 31) / 32 };

public:
    struct TempStorage {
        T of_warp[WARPS];
    };
    CUB_HERE BlockReduce() : storage(own()) {}
    CUB_HERE BlockReduce(TempStorage& storage) : storage(storage) {}
    // The first thread has the sum, of the first threads that are valid.
    template <class F> CUB_HERE T Reduce(T x, F f, int valid = THREADS, EMU_HERE) {
        typename WarpReduce<T>::TempStorage none;
        const int t = EMU_CUB_THREAD, warp = t / 32, warps = std::min((valid + 31) / 32, (int)WARPS);
        const T sum = WarpReduce<T>(none).Reduce(x, f, std::max(0, std::min(32, valid - warp * 32)), emu_file, emu_line);
        if (t % 32 == 0) storage.of_warp[warp] = sum;
        emu::barrier(EMU_SITE("cub::BlockReduce"), 0, 0);
        if (t) return sum;
        T all = storage.of_warp[0];
        for (int i = 1; i < warps; i++) all = f(all, storage.of_warp[i]);
        return all;
    }
    CUB_HERE T Sum(T x, int valid = THREADS, EMU_HERE) { return Reduce(x, cub::Sum(), valid, emu_file, emu_line); }
    template <int N, class F> CUB_HERE T Reduce(T (&items)[N], F f, EMU_HERE) {
        return Reduce(ThreadReduce(items, f), f, THREADS, emu_file, emu_line);
    }
    template <int N> CUB_HERE T Sum(T (&items)[N], EMU_HERE) { return Reduce(items, cub::Sum(), emu_file, emu_line); }

private:
    TempStorage& storage;
    static TempStorage& own() {
        __shared__ TempStorage mine;
        return mine;
    }
};
template <class T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0> class BlockScan {
    enum { THREADS = X * Y * Z, WARPS = (THREADS + 31) / 32 };

public:
    struct TempStorage {
        T of_warp[WARPS], prefix;
    };
    CUB_HERE BlockScan() : storage(own()) {}
    CUB_HERE BlockScan(TempStorage& storage) : storage(storage) {}
#define EMU_CUB_SITE EMU_SITE("cub::BlockScan")
    template <class F> CUB_HERE void InclusiveScan(T x, T& y, F f, EMU_HERE) {
        T sum;
        scan(EMU_CUB_SITE, x, y, f, sum);
    }
    template <class F> CUB_HERE void InclusiveScan(T x, T& y, F f, T& sum, EMU_HERE) { scan(EMU_CUB_SITE, x, y, f, sum); }
    template <class F, class Prefix, std::enable_if_t<std::is_class_v<Prefix> && !std::is_same_v<Prefix, T>, int> = 0>
    CUB_HERE void InclusiveScan(T x, T& y, F f, Prefix& prefix, EMU_HERE) {
        T sum;
        scan(EMU_CUB_SITE, x, y, f, sum);
        y = f(prefix_of(EMU_CUB_SITE, prefix, sum), y);
    }
    template <class F> CUB_HERE void ExclusiveScan(T x, T& y, T first, F f, EMU_HERE) {
        T sum;
        exclusive(EMU_CUB_SITE, x, y, &first, f, sum);
    }
    template <class F> CUB_HERE void ExclusiveScan(T x, T& y, T first, F f, T& sum, EMU_HERE) {
        exclusive(EMU_CUB_SITE, x, y, &first, f, sum);
    }
    template <class F> CUB_HERE void ExclusiveScan(T x, T& y, F f, EMU_HERE) {
        T sum;
        exclusive(EMU_CUB_SITE, x, y, (const T*)nullptr, f, sum);
    }
    template <class F, class Prefix, std::enable_if_t<std::is_class_v<Prefix> && !std::is_same_v<Prefix, T>, int> = 0>
    CUB_HERE void ExclusiveScan(T x, T& y, F f, Prefix& prefix, EMU_HERE) {
        T sum;
        exclusive(EMU_CUB_SITE, x, y, (const T*)nullptr, f, sum);
        const T first = prefix_of(EMU_CUB_SITE, prefix, sum);
        y = EMU_CUB_THREAD ? f(first, y) : first;
    }
    CUB_HERE void InclusiveSum(T x, T& y, EMU_HERE) {
        T sum;
        scan(EMU_CUB_SITE, x, y, cub::Sum(), sum);
    }
    CUB_HERE void InclusiveSum(T x, T& y, T& sum, EMU_HERE) { scan(EMU_CUB_SITE, x, y, cub::Sum(), sum); }
    CUB_HERE void ExclusiveSum(T x, T& y, EMU_HERE) {
        T sum;
        const T zero = T();
        exclusive(EMU_CUB_SITE, x, y, &zero, cub::Sum(), sum);
    }
    CUB_HERE void ExclusiveSum(T x, T& y, T& sum, EMU_HERE) {
        const T zero = T();
        exclusive(EMU_CUB_SITE, x, y, &zero, cub::Sum(), sum);
    }
    template <class Prefix, std::enable_if_t<std::is_class_v<Prefix> && !std::is_same_v<Prefix, T>, int> = 0>
    CUB_HERE void InclusiveSum(T x, T& y, Prefix& prefix, EMU_HERE) {
        InclusiveScan(x, y, cub::Sum(), prefix, emu_file, emu_line);
    }
    template <class Prefix, std::enable_if_t<std::is_class_v<Prefix> && !std::is_same_v<Prefix, T>, int> = 0>
    CUB_HERE void ExclusiveSum(T x, T& y, Prefix& prefix, EMU_HERE) {
        ExclusiveScan(x, y, cub::Sum(), prefix, emu_file, emu_line);
    }
    // Several items of each thread.
    template <int N, class F> CUB_HERE void InclusiveScan(T (&x)[N], T (&y)[N], F f, EMU_HERE) {
        T sum, before;
        items(EMU_CUB_SITE, x, y, f, true, before, sum);
    }
    template <int N, class F> CUB_HERE void InclusiveScan(T (&x)[N], T (&y)[N], F f, T& sum, EMU_HERE) {
        T before;
        items(EMU_CUB_SITE, x, y, f, true, before, sum);
    }
    template <int N> CUB_HERE void InclusiveSum(T (&x)[N], T (&y)[N], EMU_HERE) {
        InclusiveScan(x, y, cub::Sum(), emu_file, emu_line);
    }
    template <int N> CUB_HERE void InclusiveSum(T (&x)[N], T (&y)[N], T& sum, EMU_HERE) {
        InclusiveScan(x, y, cub::Sum(), sum, emu_file, emu_line);
    }
    template <int N, class F> CUB_HERE void ExclusiveScan(T (&x)[N], T (&y)[N], T first, F f, EMU_HERE) {
        T sum;
        items(EMU_CUB_SITE, x, y, f, false, first, sum);
    }
    template <int N, class F> CUB_HERE void ExclusiveScan(T (&x)[N], T (&y)[N], T first, F f, T& sum, EMU_HERE) {
        items(EMU_CUB_SITE, x, y, f, false, first, sum);
    }
    template <int N> CUB_HERE void ExclusiveSum(T (&x)[N], T (&y)[N], EMU_HERE) {
        ExclusiveScan(x, y, T(), cub::Sum(), emu_file, emu_line);
    }
    template <int N> CUB_HERE void ExclusiveSum(T (&x)[N], T (&y)[N], T& sum, EMU_HERE) {
        ExclusiveScan(x, y, T(), cub::Sum(), sum, emu_file, emu_line);
    }
    template <int N, class Prefix, std::enable_if_t<std::is_class_v<Prefix> && !std::is_same_v<Prefix, T>, int> = 0>
    CUB_HERE void ExclusiveSum(T (&x)[N], T (&y)[N], Prefix& prefix, EMU_HERE) {
        T sum;
        items(EMU_CUB_SITE, x, y, cub::Sum(), false, T(), sum);
        const T first = prefix_of(EMU_CUB_SITE, prefix, sum);
        for (int i = 0; i < N; i++) y[i] = first + y[i];
    }
    template <int N, class Prefix, std::enable_if_t<std::is_class_v<Prefix> && !std::is_same_v<Prefix, T>, int> = 0>
    CUB_HERE void InclusiveSum(T (&x)[N], T (&y)[N], Prefix& prefix, EMU_HERE) {
        T sum;
        items(EMU_CUB_SITE, x, y, cub::Sum(), true, T(), sum);
        const T first = prefix_of(EMU_CUB_SITE, prefix, sum);
        for (int i = 0; i < N; i++) y[i] = first + y[i];
    }
#undef EMU_CUB_SITE

private:
    TempStorage& storage;
    static TempStorage& own() {
        __shared__ TempStorage mine;
        return mine;
    }
    // What threads before this one have, if there are any, in `before`.
    template <class F> CUB_HERE void scan(emu::Site site, T x, T& y, F f, T& sum, T* before = nullptr) {
        typename WarpScan<T>::TempStorage none;
        const int t = EMU_CUB_THREAD, warp = t / 32, last = (int)hw4::threads_of_block() - 1;
        T own, of_warp;
        WarpScan<T>(none).InclusiveScan(x, own, f, of_warp, site.file, site.line);
        if (t % 32 == 31 || t == last) storage.of_warp[warp] = own;
        emu::barrier(site, 0, 0);
        T all = storage.of_warp[0], of_warps{};
        for (int i = 0; i <= last / 32; i++) {
            if (i == warp && i) of_warps = all;
            if (i) all = f(all, storage.of_warp[i]);
        }
        const T left = hw4::together(site, hw4::lanes_of_tile(32), own, [](T* values, int n) {
            for (int i = n - 1; i > 0; i--) values[i] = values[i - 1];
        });
        if (before && t) *before = t % 32 == 0 ? of_warps : warp ? f(of_warps, left) : left;
        y = warp ? f(of_warps, own) : own, sum = all;
    }
    template <class F> CUB_HERE void exclusive(emu::Site site, T x, T& y, const T* first, F f, T& sum) {
        T own, before{};
        scan(site, x, own, f, sum, &before);
        if (!first) y = before;
        else y = EMU_CUB_THREAD ? f(*first, before) : *first;
    }
    template <int N, class F>
    CUB_HERE void items(emu::Site site, T (&x)[N], T (&y)[N], F f, bool inclusive, T first, T& sum) {
        T own, before{};
        scan(site, ThreadReduce(x, f), own, f, sum, &before);
        const bool any = EMU_CUB_THREAD > 0;
        if (inclusive) {
            T running = any ? f(before, x[0]) : x[0];
            y[0] = running;
            for (int i = 1; i < N; i++) y[i] = running = f(running, x[i]);
        } else {
            T running = any ? f(first, before) : first;
            for (int i = 0; i < N; i++) {
                const T next = f(running, x[i]);
                y[i] = running, running = next;
            }
        }
    }
    // What a program's function gives to the first warp for the block's sum.
    template <class Prefix> CUB_HERE T prefix_of(emu::Site site, Prefix& prefix, T sum) {
        if (EMU_CUB_THREAD < 32) {
            const T first = prefix(sum);
            if (EMU_CUB_THREAD == 0) storage.prefix = first;
        }
        emu::barrier(site, 0, 0);
        return storage.prefix;
    }
};
enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT, BLOCK_LOAD_STRIPED, BLOCK_LOAD_VECTORIZE, BLOCK_LOAD_TRANSPOSE, BLOCK_LOAD_WARP_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT, BLOCK_STORE_STRIPED, BLOCK_STORE_VECTORIZE, BLOCK_STORE_TRANSPOSE, BLOCK_STORE_WARP_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};
// Items of the block in another arrangement: blocked, thread t has t * N to t * N + N - 1; striped, t, t + threads and so on.
template <class T, int X, int N, bool = false, int Y = 1, int Z = 1, int = 0> class BlockExchange {
    enum { THREADS = X * Y * Z };

public:
    struct TempStorage {
        T items[THREADS * N];
    };
    CUB_HERE BlockExchange(TempStorage& storage) : storage(storage) {}
    template <class U> CUB_HERE void StripedToBlocked(const T (&x)[N], U (&y)[N], EMU_HERE) {
        move(EMU_SITE("cub::BlockExchange"), x, y, [](int t, int i) { return i * THREADS + t; }, blocked);
    }
    template <class U> CUB_HERE void BlockedToStriped(const T (&x)[N], U (&y)[N], EMU_HERE) {
        move(EMU_SITE("cub::BlockExchange"), x, y, blocked, [](int t, int i) { return i * THREADS + t; });
    }
    template <class U> CUB_HERE void WarpStripedToBlocked(const T (&x)[N], U (&y)[N], EMU_HERE) {
        move(EMU_SITE("cub::BlockExchange"), x, y, of_warp, blocked);
    }
    template <class U> CUB_HERE void BlockedToWarpStriped(const T (&x)[N], U (&y)[N], EMU_HERE) {
        move(EMU_SITE("cub::BlockExchange"), x, y, blocked, of_warp);
    }
    template <class U, class R> CUB_HERE void ScatterToBlocked(const T (&x)[N], U (&y)[N], R (&ranks)[N], EMU_HERE) {
        move(EMU_SITE("cub::BlockExchange"), x, y, [&](int, int i) { return (int)ranks[i]; }, blocked);
    }
    template <class U, class R> CUB_HERE void ScatterToStriped(const T (&x)[N], U (&y)[N], R (&ranks)[N], EMU_HERE) {
        move(EMU_SITE("cub::BlockExchange"), x, y, [&](int, int i) { return (int)ranks[i]; },
             [](int t, int i) { return i * THREADS + t; });
    }
    CUB_HERE void StripedToBlocked(T (&x)[N], EMU_HERE) { StripedToBlocked(x, x, emu_file, emu_line); }
    CUB_HERE void BlockedToStriped(T (&x)[N], EMU_HERE) { BlockedToStriped(x, x, emu_file, emu_line); }

private:
    TempStorage& storage;
    static int blocked(int t, int i) { return t * N + i; }
    static int of_warp(int t, int i) { return t / 32 * 32 * N + i * 32 + t % 32; }
    template <class U, class From, class To>
    CUB_HERE void move(emu::Site site, const T (&x)[N], U (&y)[N], const From& from, const To& to) {
        for (int i = 0; i < N; i++) storage.items[from(EMU_CUB_THREAD, i)] = x[i];
        emu::barrier(site, 0, 0);
        for (int i = 0; i < N; i++) y[i] = storage.items[to(EMU_CUB_THREAD, i)];
    }
};
template <class T, int X, int N, BlockLoadAlgorithm How = BLOCK_LOAD_DIRECT, int Y = 1, int Z = 1, int = 0> class BlockLoad {
    typedef BlockExchange<T, X, N, false, Y, Z> Exchange;
    enum { THREADS = X * Y * Z, TURNED = How >= BLOCK_LOAD_TRANSPOSE };
    struct None {};

public:
    typedef std::conditional_t<TURNED, typename Exchange::TempStorage, None> TempStorage;
    CUB_HERE BlockLoad() : storage(own()) {}
    CUB_HERE BlockLoad(TempStorage& storage) : storage(storage) {}
    template <class In, class... More> CUB_HERE void Load(In in, T (&items)[N], More... more) {
        if constexpr (TURNED) {
            LoadDirectStriped<THREADS>(EMU_CUB_THREAD, in, items, more...);
            Exchange(storage).StripedToBlocked(items, items);
        } else if constexpr (How == BLOCK_LOAD_STRIPED) {
            LoadDirectStriped<THREADS>(EMU_CUB_THREAD, in, items, more...);
        } else {
            LoadDirectBlocked(EMU_CUB_THREAD, in, items, more...);
        }
    }

private:
    TempStorage& storage;
    static TempStorage& own() {
        __shared__ TempStorage mine;
        return mine;
    }
};
template <class T, int X, int N, BlockStoreAlgorithm How = BLOCK_STORE_DIRECT, int Y = 1, int Z = 1, int = 0> class BlockStore {
    typedef BlockExchange<T, X, N, false, Y, Z> Exchange;
    enum { THREADS = X * Y * Z, TURNED = How >= BLOCK_STORE_TRANSPOSE };
    struct None {};

public:
    typedef std::conditional_t<TURNED, typename Exchange::TempStorage, None> TempStorage;
    CUB_HERE BlockStore() : storage(own()) {}
    CUB_HERE BlockStore(TempStorage& storage) : storage(storage) {}
    template <class Out, class... More> CUB_HERE void Store(Out out, T (&items)[N], More... more) {
        if constexpr (TURNED) {
            Exchange(storage).BlockedToStriped(items, items);
            StoreDirectStriped<THREADS>(EMU_CUB_THREAD, out, items, more...);
        } else if constexpr (How == BLOCK_STORE_STRIPED) {
            StoreDirectStriped<THREADS>(EMU_CUB_THREAD, out, items, more...);
        } else {
            StoreDirectBlocked(EMU_CUB_THREAD, out, items, more...);
        }
    }

private:
    TempStorage& storage;
    static TempStorage& own() {
        __shared__ TempStorage mine;
        return mine;
    }
};
// A key's bits, so that smaller keys have smaller bits.
template <class K> inline unsigned long long ordered_bits(K key) {
    typedef std::conditional_t<
        sizeof(K) == 1, unsigned char,
        std::conditional_t<sizeof(K) == 2, unsigned short, std::conditional_t<sizeof(K) == 4, unsigned, unsigned long long>>> Bits;
    Bits bits;
    memcpy(&bits, &key, sizeof bits);
    const Bits top = (Bits)1 << (8 * sizeof(K) - 1);
    if constexpr (std::is_integral_v<K>) return std::is_signed_v<K> ? (Bits)(bits ^ top) : bits;
    return bits & top ? (Bits)~bits : (Bits)(bits | top);
}
template <class K> inline unsigned long long digits(K key, int begin, int end) {
    const unsigned long long bits = ordered_bits(key) >> begin;
    return end - begin >= 64 ? bits : bits & ((1ull << (end - begin)) - 1);
}
template <class K, int X, int N, class V = NullType, int = 4, bool = true, BlockScanAlgorithm = BLOCK_SCAN_WARP_SCANS,
          int = 0, int Y = 1, int Z = 1, int = 0>
class BlockRadixSort {
    enum { ITEMS = X * Y * Z * N };

public:
    struct TempStorage {
        K keys[ITEMS], other_keys[ITEMS];
        V values[ITEMS], other_values[ITEMS];
    };
    CUB_HERE BlockRadixSort() : storage(own()) {}
    CUB_HERE BlockRadixSort(TempStorage& storage) : storage(storage) {}
#define EMU_CUB_SORTS(name, descending, striped)                                                                     \
    CUB_HERE void name(K (&keys)[N], int begin = 0, int end = sizeof(K) * 8, EMU_HERE) {                            \
        V none[N];                                                                                                  \
        sort(EMU_SITE("cub::BlockRadixSort"), keys, none, begin, end, descending, striped);                          \
    }                                                                                                               \
    CUB_HERE void name(K (&keys)[N], V (&values)[N], int begin = 0, int end = sizeof(K) * 8, EMU_HERE) {            \
        sort(EMU_SITE("cub::BlockRadixSort"), keys, values, begin, end, descending, striped);                        \
    }
    EMU_CUB_SORTS(Sort, false, false)
    EMU_CUB_SORTS(SortDescending, true, false)
    EMU_CUB_SORTS(SortBlockedToStriped, false, true)
    EMU_CUB_SORTS(SortDescendingBlockedToStriped, true, true)
#undef EMU_CUB_SORTS

private:
    enum { PAIRS = !std::is_same_v<V, NullType> };
    TempStorage& storage;
    static TempStorage& own() {
        __shared__ TempStorage mine;
        return mine;
    }
    // The first thread sorts, by eight bits at a time.
    CUB_HERE void sort(emu::Site site, K (&keys)[N], V (&values)[N], int begin, int end, bool descending, bool striped) {
        const int t = EMU_CUB_THREAD;
        for (int i = 0; i < N; i++) {
            storage.keys[t * N + i] = keys[i];
            if constexpr (PAIRS) storage.values[t * N + i] = values[i];
        }
        emu::barrier(site, 0, 0);
        if (t == 0)
            for (int at = begin; at < end; at += 8) pass(at, std::min(at + 8, end), descending);
        emu::barrier(site, 0, 0);
        for (int i = 0; i < N; i++) {
            const int from = striped ? i * (ITEMS / N) + t : t * N + i;
            keys[i] = storage.keys[from];
            if constexpr (PAIRS) values[i] = storage.values[from];
        }
    }
    void pass(int begin, int end, bool descending) {
        int places[257] = {};
        auto digit = [&](K key) {
            const int d = (int)digits(key, begin, end);
            return descending ? 255 - d : d;
        };
        for (int i = 0; i < ITEMS; i++) places[digit(storage.keys[i]) + 1]++;
        for (int d = 0; d < 256; d++) places[d + 1] += places[d];
        for (int i = 0; i < ITEMS; i++) {
            const int to = places[digit(storage.keys[i])]++;
            storage.other_keys[to] = storage.keys[i];
            if constexpr (PAIRS) storage.other_values[to] = storage.values[i];
        }
        for (int i = 0; i < ITEMS; i++) {
            storage.keys[i] = storage.other_keys[i];
            if constexpr (PAIRS) storage.values[i] = storage.other_values[i];
        }
    }
};
enum BlockHistogramAlgorithm { BLOCK_HISTO_SORT, BLOCK_HISTO_ATOMIC };
template <class T, int X, int N, int Bins, BlockHistogramAlgorithm = BLOCK_HISTO_SORT, int Y = 1, int Z = 1, int = 0>
class BlockHistogram {
public:
    struct TempStorage {};
    CUB_HERE BlockHistogram(TempStorage&) {}
    template <class C> CUB_HERE void InitHistogram(C (&bins)[Bins]) {
        for (int i = EMU_CUB_THREAD; i < Bins; i += X * Y * Z) bins[i] = 0;
    }
    template <class C> CUB_HERE void Composite(T (&items)[N], C (&bins)[Bins], EMU_HERE) {
        emu::barrier(EMU_SITE("cub::BlockHistogram"), 0, 0);
        for (int i = 0; i < N; i++) atomicAdd(&bins[items[i]], (C)1);
    }
    template <class C> CUB_HERE void Histogram(T (&items)[N], C (&bins)[Bins], EMU_HERE) {
        InitHistogram(bins);
        Composite(items, bins, emu_file, emu_line);
    }
};
// Items and their neighbours in the block.
template <class T, int X, int Y = 1, int Z = 1, int = 0> class BlockNeighbours {
public:
    struct TempStorage {
        T first[X * Y * Z], last[X * Y * Z];
    };
    CUB_HERE BlockNeighbours(TempStorage& storage) : storage(storage) {}
    template <int N, class E> CUB_HERE void each(emu::Site site, T (&items)[N], E each) {
        const int t = EMU_CUB_THREAD, n = (int)hw4::threads_of_block();
        storage.first[t] = items[0], storage.last[t] = items[N - 1];
        emu::barrier(site, 0, 0);
        T left = t ? storage.last[t - 1] : T(), right = t + 1 < n ? storage.first[t + 1] : T();
        T own[N];
        for (int i = 0; i < N; i++) own[i] = items[i];
        for (int i = 0; i < N; i++)
            each(i, i || t ? (i ? &own[i - 1] : &left) : nullptr, own[i],
                 i + 1 < N || t + 1 < n ? (i + 1 < N ? &own[i + 1] : &right) : nullptr);
    }

private:
    TempStorage& storage;
};
template <class T, int X, int Y = 1, int Z = 1, int = 0> class BlockAdjacentDifference {
    typedef BlockNeighbours<T, X, Y, Z> Neighbours;
    Neighbours all;

public:
    typedef typename Neighbours::TempStorage TempStorage;
    CUB_HERE BlockAdjacentDifference(TempStorage& storage) : all(storage) {}
    template <int N, class U, class F> CUB_HERE void SubtractLeft(T (&x)[N], U (&y)[N], F f, EMU_HERE) {
        all.each(EMU_SITE("cub::BlockAdjacentDifference"), x,
                 [&](int i, T* left, T own, T*) { y[i] = left ? (U)f(own, *left) : (U)own; });
    }
    template <int N, class U, class F> CUB_HERE void SubtractLeft(T (&x)[N], U (&y)[N], F f, T before, EMU_HERE) {
        all.each(EMU_SITE("cub::BlockAdjacentDifference"), x,
                 [&](int i, T* left, T own, T*) { y[i] = (U)f(own, left ? *left : before); });
    }
    template <int N, class U, class F> CUB_HERE void SubtractRight(T (&x)[N], U (&y)[N], F f, EMU_HERE) {
        all.each(EMU_SITE("cub::BlockAdjacentDifference"), x,
                 [&](int i, T*, T own, T* right) { y[i] = right ? (U)f(own, *right) : (U)own; });
    }
};
template <class T, int X, int Y = 1, int Z = 1, int = 0> class BlockDiscontinuity {
    typedef BlockNeighbours<T, X, Y, Z> Neighbours;
    Neighbours all;

public:
    typedef typename Neighbours::TempStorage TempStorage;
    CUB_HERE BlockDiscontinuity(TempStorage& storage) : all(storage) {}
    template <int N, class U, class F> CUB_HERE void FlagHeads(U (&flags)[N], T (&x)[N], F f, EMU_HERE) {
        all.each(EMU_SITE("cub::BlockDiscontinuity"), x,
                 [&](int i, T* left, T own, T*) { flags[i] = (U)(!left || f(*left, own)); });
    }
    template <int N, class U, class F> CUB_HERE void FlagHeads(U (&flags)[N], T (&x)[N], F f, T before, EMU_HERE) {
        all.each(EMU_SITE("cub::BlockDiscontinuity"), x,
                 [&](int i, T* left, T own, T*) { flags[i] = (U)f(left ? *left : before, own); });
    }
    template <int N, class U, class F> CUB_HERE void FlagTails(U (&flags)[N], T (&x)[N], F f, EMU_HERE) {
        all.each(EMU_SITE("cub::BlockDiscontinuity"), x,
                 [&](int i, T*, T own, T* right) { flags[i] = (U)(!right || f(own, *right)); });
    }
};
}  // namespace cub

#include "device.cuh"
