// What CUB does with a whole GPU, by plain loops on its memory. Without temporary storage, each says how much it needs.
#pragma once
#include <algorithm>
#include <vector>

namespace cub {
namespace detail {
// While it lives, the host does a GPU's work: it may touch the GPU's memory.
struct Work {
    Work() { emu::host_works++; }
    ~Work() { emu::host_works--; }
};
struct Call {
    const char* what;
    hw4::Place from;
};
template <class It> using ValueOf = std::decay_t<decltype(std::declval<It&>()[0])>;
constexpr size_t STORAGE = 1024;  // bytes, whatever is asked for
// Whether this call only asks for the size; `ok`: whether it is given as much as it asked for.
inline bool asks(const Call& call, void* storage, size_t& bytes, cudaError_t& ok) {
    ok = cudaSuccess;
    if (!storage) return bytes = STORAGE, true;
    if (bytes < STORAGE) ok = cudaErrorInvalidValue;
    else if (!hw4::library_touches(storage, STORAGE, true, call.what, call.from)) ok = cudaErrorInvalidValue;
    return false;
}
// Elements that a pointer names are looked at as one piece; what another iterator leads to, one by one.
template <class It> inline bool readable(const Call& call, const It& in, size_t n) {
    if constexpr (std::is_pointer_v<It>) return hw4::library_touches(in, n * sizeof *in, false, call.what, call.from);
    else return true;
}
template <class It> inline bool writable(const Call& call, const It& out, size_t n) {
    if constexpr (std::is_pointer_v<It>) return hw4::library_touches(out, n * sizeof *out, true, call.what, call.from);
    else return true;
}
// By halves, in order: a sum of many floats is as exact as a GPU's.
template <class T, class It, class F> inline T folded(It in, size_t begin, size_t end, const F& f) {
    if (end - begin <= 8) {
        T sum = in[begin];
        for (size_t i = begin + 1; i < end; i++) sum = f(sum, in[i]);
        return sum;
    }
    const size_t middle = begin + (end - begin) / 2;
    return f(folded<T>(in, begin, middle, f), folded<T>(in, middle, end, f));
}
template <class It, class F, class T> inline T folded_from(It in, size_t begin, size_t end, const F& f, T first) {
    return begin == end ? first : (T)f(first, folded<T>(in, begin, end, f));
}
template <class Key, class Value> struct Pair {
    Key key;
    Value value;
};
template <class V> inline V lowest() { return std::numeric_limits<V>::lowest(); }
template <class V> inline V highest() { return std::numeric_limits<V>::max(); }
}  // namespace detail
// The beginning of each function: what it is called, whether it is only asked for a size, and what it may touch.
#define EMU_CUB_BEGIN(name)                                                                                  \
    const detail::Call call{"cub::" name, from};                                                             \
    cudaError_t ok;                                                                                          \
    if (detail::asks(call, storage, bytes, ok)) return cudaSuccess;                                          \
    if (ok != cudaSuccess) return hw4::fail(ok);                                                             \
    const detail::Work work
#define EMU_CUB_NEEDS(condition)                                                                             \
    if (!(condition)) return hw4::fail(cudaErrorInvalidValue)

struct DeviceReduce {
    template <class In, class Out, class N, class F, class T>
    static cudaError_t Reduce(void* storage, size_t& bytes, In in, Out out, N n, F f, T first, cudaStream_t = 0, HW4_FROM) {
        EMU_CUB_BEGIN("DeviceReduce::Reduce");
        EMU_CUB_NEEDS(detail::readable(call, in, (size_t)n) && detail::writable(call, out, 1));
        out[0] = detail::folded_from(in, 0, (size_t)n, f, first);
        return cudaSuccess;
    }
    template <class In, class Out, class N>
    static cudaError_t Sum(void* storage, size_t& bytes, In in, Out out, N n, cudaStream_t stream = 0, HW4_FROM) {
        typedef detail::ValueOf<In> T;
        return Reduce(storage, bytes, in, out, n, cub::Sum(), T(), stream, from);
    }
    template <class In, class Out, class N>
    static cudaError_t Max(void* storage, size_t& bytes, In in, Out out, N n, cudaStream_t stream = 0, HW4_FROM) {
        return Reduce(storage, bytes, in, out, n, cub::Max(), detail::lowest<detail::ValueOf<In>>(), stream, from);
    }
    template <class In, class Out, class N>
    static cudaError_t Min(void* storage, size_t& bytes, In in, Out out, N n, cudaStream_t stream = 0, HW4_FROM) {
        return Reduce(storage, bytes, in, out, n, cub::Min(), detail::highest<detail::ValueOf<In>>(), stream, from);
    }
    template <class In, class Out, class N>
    static cudaError_t ArgMax(void* storage, size_t& bytes, In in, Out out, N n, cudaStream_t = 0, HW4_FROM) {
        typedef KeyValuePair<int, detail::ValueOf<In>> P;
        EMU_CUB_BEGIN("DeviceReduce::ArgMax");
        EMU_CUB_NEEDS(detail::readable(call, in, (size_t)n) && detail::writable(call, out, 1));
        const ArgIndexInputIterator<In, int, detail::ValueOf<In>> pairs(in);
        out[0] = n ? detail::folded<P>(pairs, 0, (size_t)n, cub::ArgMax()) : P{1, detail::lowest<detail::ValueOf<In>>()};
        return cudaSuccess;
    }
    template <class In, class Out, class N>
    static cudaError_t ArgMin(void* storage, size_t& bytes, In in, Out out, N n, cudaStream_t = 0, HW4_FROM) {
        typedef KeyValuePair<int, detail::ValueOf<In>> P;
        EMU_CUB_BEGIN("DeviceReduce::ArgMin");
        EMU_CUB_NEEDS(detail::readable(call, in, (size_t)n) && detail::writable(call, out, 1));
        const ArgIndexInputIterator<In, int, detail::ValueOf<In>> pairs(in);
        out[0] = n ? detail::folded<P>(pairs, 0, (size_t)n, cub::ArgMin()) : P{1, detail::highest<detail::ValueOf<In>>()};
        return cudaSuccess;
    }
    template <class In, class Out, class N, class F, class Each, class T>
    static cudaError_t TransformReduce(void* storage, size_t& bytes, In in, Out out, N n, F f, Each each, T first,
                                       cudaStream_t stream = 0, HW4_FROM) {
        return Reduce(storage, bytes, TransformInputIterator<T, Each, In>(in, each), out, n, f, first, stream, from);
    }
    template <class Keys, class Uniques, class In, class Out, class Count, class F, class N>
    static cudaError_t ReduceByKey(void* storage, size_t& bytes, Keys keys, Uniques uniques, In in, Out out, Count count, F f,
                                   N n, cudaStream_t = 0, HW4_FROM) {
        EMU_CUB_BEGIN("DeviceReduce::ReduceByKey");
        EMU_CUB_NEEDS(detail::readable(call, keys, (size_t)n) && detail::readable(call, in, (size_t)n) &&
                      detail::writable(call, count, 1));
        size_t runs = 0;
        for (size_t begin = 0; begin < (size_t)n; runs++) {
            size_t end = begin + 1;
            while (end < (size_t)n && keys[end] == keys[begin]) end++;
            uniques[runs] = keys[begin];
            out[runs] = detail::folded<detail::ValueOf<In>>(in, begin, end, f);
            begin = end;
        }
        count[0] = (detail::ValueOf<Count>)runs;
        return cudaSuccess;
    }
};
struct DeviceSegmentedReduce {
    template <class In, class Out, class Begin, class End, class F, class T>
    static cudaError_t Reduce(void* storage, size_t& bytes, In in, Out out, int segments, Begin begins, End ends, F f, T first,
                              cudaStream_t = 0, HW4_FROM) {
        EMU_CUB_BEGIN("DeviceSegmentedReduce::Reduce");
        EMU_CUB_NEEDS(detail::readable(call, begins, segments) && detail::readable(call, ends, segments) &&
                      detail::writable(call, out, segments));
        for (int s = 0; s < segments; s++)
            out[s] = begins[s] < ends[s] ? detail::folded_from(in, (size_t)begins[s], (size_t)ends[s], f, first) : first;
        return cudaSuccess;
    }
    template <class In, class Out, class Begin, class End>
    static cudaError_t Sum(void* storage, size_t& bytes, In in, Out out, int segments, Begin begins, End ends,
                           cudaStream_t stream = 0, HW4_FROM) {
        return Reduce(storage, bytes, in, out, segments, begins, ends, cub::Sum(), detail::ValueOf<In>(), stream, from);
    }
    template <class In, class Out, class Begin, class End>
    static cudaError_t Max(void* storage, size_t& bytes, In in, Out out, int segments, Begin begins, End ends,
                           cudaStream_t stream = 0, HW4_FROM) {
        return Reduce(storage, bytes, in, out, segments, begins, ends, cub::Max(), detail::lowest<detail::ValueOf<In>>(), stream,
                      from);
    }
    template <class In, class Out, class Begin, class End>
    static cudaError_t Min(void* storage, size_t& bytes, In in, Out out, int segments, Begin begins, End ends,
                           cudaStream_t stream = 0, HW4_FROM) {
        return Reduce(storage, bytes, in, out, segments, begins, ends, cub::Min(), detail::highest<detail::ValueOf<In>>(), stream,
                      from);
    }
};
struct DeviceScan {
    template <class In, class Out, class F, class T, class N>
    static cudaError_t ExclusiveScan(void* storage, size_t& bytes, In in, Out out, F f, T first, N n, cudaStream_t = 0,
                                     HW4_FROM) {
        EMU_CUB_BEGIN("DeviceScan::ExclusiveScan");
        EMU_CUB_NEEDS(detail::readable(call, in, (size_t)n) && detail::writable(call, out, (size_t)n));
        T sum = first;
        for (size_t i = 0; i < (size_t)n; i++) {
            const T next = f(sum, in[i]);
            out[i] = sum, sum = next;
        }
        return cudaSuccess;
    }
    template <class In, class Out, class F, class N>
    static cudaError_t InclusiveScan(void* storage, size_t& bytes, In in, Out out, F f, N n, cudaStream_t = 0, HW4_FROM) {
        EMU_CUB_BEGIN("DeviceScan::InclusiveScan");
        EMU_CUB_NEEDS(detail::readable(call, in, (size_t)n) && detail::writable(call, out, (size_t)n));
        if (!n) return cudaSuccess;
        detail::ValueOf<In> sum = in[0];
        out[0] = sum;
        for (size_t i = 1; i < (size_t)n; i++) sum = f(sum, in[i]), out[i] = sum;
        return cudaSuccess;
    }
    template <class In, class Out, class F, class T, class N>
    static cudaError_t InclusiveScanInit(void* storage, size_t& bytes, In in, Out out, F f, T first, N n, cudaStream_t = 0,
                                         HW4_FROM) {
        EMU_CUB_BEGIN("DeviceScan::InclusiveScanInit");
        EMU_CUB_NEEDS(detail::readable(call, in, (size_t)n) && detail::writable(call, out, (size_t)n));
        for (size_t i = 0; i < (size_t)n; i++) first = f(first, in[i]), out[i] = first;
        return cudaSuccess;
    }
    template <class In, class Out, class N>
    static cudaError_t ExclusiveSum(void* storage, size_t& bytes, In in, Out out, N n, cudaStream_t stream = 0, HW4_FROM) {
        return ExclusiveScan(storage, bytes, in, out, cub::Sum(), detail::ValueOf<In>(), n, stream, from);
    }
    template <class In, class Out, class N>
    static cudaError_t InclusiveSum(void* storage, size_t& bytes, In in, Out out, N n, cudaStream_t stream = 0, HW4_FROM) {
        return InclusiveScan(storage, bytes, in, out, cub::Sum(), n, stream, from);
    }
    // In place.
    template <class It, class N, std::enable_if_t<std::is_integral_v<N>, int> = 0>
    static cudaError_t ExclusiveSum(void* storage, size_t& bytes, It in, N n, cudaStream_t stream = 0, HW4_FROM) {
        return ExclusiveSum(storage, bytes, in, in, n, stream, from);
    }
    template <class It, class N, std::enable_if_t<std::is_integral_v<N>, int> = 0>
    static cudaError_t InclusiveSum(void* storage, size_t& bytes, It in, N n, cudaStream_t stream = 0, HW4_FROM) {
        return InclusiveSum(storage, bytes, in, in, n, stream, from);
    }
    template <class Keys, class In, class Out, class N>
    static cudaError_t ExclusiveSumByKey(void* storage, size_t& bytes, Keys keys, In in, Out out, N n, HW4_FROM) {
        return by_key(storage, bytes, keys, in, out, n, false, from);
    }
    template <class Keys, class In, class Out, class N>
    static cudaError_t InclusiveSumByKey(void* storage, size_t& bytes, Keys keys, In in, Out out, N n, HW4_FROM) {
        return by_key(storage, bytes, keys, in, out, n, true, from);
    }

private:
    template <class Keys, class In, class Out, class N>
    static cudaError_t by_key(void* storage, size_t& bytes, Keys keys, In in, Out out, N n, bool inclusive, hw4::Place from) {
        EMU_CUB_BEGIN("DeviceScan::SumByKey");
        EMU_CUB_NEEDS(detail::readable(call, keys, (size_t)n) && detail::readable(call, in, (size_t)n) &&
                      detail::writable(call, out, (size_t)n));
        detail::ValueOf<In> sum{};
        for (size_t i = 0; i < (size_t)n; i++) {
            if (i && !(keys[i] == keys[i - 1])) sum = {};
            const detail::ValueOf<In> next = sum + in[i];
            out[i] = inclusive ? next : sum, sum = next;
        }
        return cudaSuccess;
    }
};
namespace detail {
template <class K, class V, class Less>
inline cudaError_t sort_pairs(const Call& call, const K* keys, K* sorted, const V* values, V* moved, const std::vector<size_t>& bounds,
                              const Less& less) {
    for (size_t s = 0; s + 1 < bounds.size(); s += 2) {
        const size_t begin = bounds[s], n = bounds[s + 1] > begin ? bounds[s + 1] - begin : 0;
        EMU_CUB_NEEDS(readable(call, keys + begin, n) && writable(call, sorted + begin, n));
        if (values) EMU_CUB_NEEDS(readable(call, values + begin, n) && writable(call, moved + begin, n));
        std::vector<Pair<K, V>> all(n);
        for (size_t i = 0; i < n; i++) {
            all[i].key = keys[begin + i];
            if (values) all[i].value = values[begin + i];
        }
        std::stable_sort(all.begin(), all.end(), [&](const Pair<K, V>& a, const Pair<K, V>& b) { return less(a.key, b.key); });
        for (size_t i = 0; i < n; i++) {
            sorted[begin + i] = all[i].key;
            if (values) moved[begin + i] = all[i].value;
        }
    }
    return cudaSuccess;
}
template <class Begin, class End> inline std::vector<size_t> bounds_of(int segments, Begin begins, End ends) {
    std::vector<size_t> bounds;
    for (int s = 0; s < segments; s++) bounds.push_back((size_t)begins[s]), bounds.push_back((size_t)ends[s]);
    return bounds;
}
}  // namespace detail
#define EMU_CUB_RADIX_LESS                                                                                            \
    [=](K a, K b) {                                                                                                  \
        return descending ? digits(b, begin, end) < digits(a, begin, end) : digits(a, begin, end) < digits(b, begin, end); \
    }
struct DeviceRadixSort {
#define EMU_CUB_SORT(suffix, is_descending)                                                                            \
    template <class K, class V, class N>                                                                             \
    static cudaError_t SortPairs##suffix(void* storage, size_t& bytes, const K* keys, K* sorted, const V* values, V* moved, N n, \
                                         int begin = 0, int end = sizeof(K) * 8, cudaStream_t = 0, HW4_FROM) {          \
        EMU_CUB_BEGIN("DeviceRadixSort::SortPairs" #suffix);                                                          \
        const bool descending = is_descending;                                                                       \
        return detail::sort_pairs(call, keys, sorted, values, moved, {0, (size_t)n}, EMU_CUB_RADIX_LESS);              \
    }                                                                                                                \
    template <class K, class V, class N>                                                                             \
    static cudaError_t SortPairs##suffix(void* storage, size_t& bytes, DoubleBuffer<K>& keys, DoubleBuffer<V>& values, N n, \
                                         int begin = 0, int end = sizeof(K) * 8, cudaStream_t stream = 0, HW4_FROM) {   \
        const cudaError_t e = SortPairs##suffix(storage, bytes, keys.Current(), keys.Alternate(), values.Current(),    \
                                                values.Alternate(), n, begin, end, stream, from);                    \
        if (storage) keys.selector ^= 1, values.selector ^= 1;                                                       \
        return e;                                                                                                    \
    }                                                                                                                \
    template <class K, class N>                                                                                      \
    static cudaError_t SortKeys##suffix(void* storage, size_t& bytes, const K* keys, K* sorted, N n, int begin = 0,     \
                                        int end = sizeof(K) * 8, cudaStream_t = 0, HW4_FROM) {                        \
        EMU_CUB_BEGIN("DeviceRadixSort::SortKeys" #suffix);                                                           \
        const bool descending = is_descending;                                                                       \
        return detail::sort_pairs(call, keys, sorted, (const char*)nullptr, (char*)nullptr, {0, (size_t)n},            \
                                  EMU_CUB_RADIX_LESS);                                                               \
    }                                                                                                                \
    template <class K, class N>                                                                                      \
    static cudaError_t SortKeys##suffix(void* storage, size_t& bytes, DoubleBuffer<K>& keys, N n, int begin = 0,        \
                                        int end = sizeof(K) * 8, cudaStream_t stream = 0, HW4_FROM) {                 \
        const cudaError_t e = SortKeys##suffix(storage, bytes, keys.Current(), keys.Alternate(), n, begin, end, stream, from); \
        if (storage) keys.selector ^= 1;                                                                             \
        return e;                                                                                                    \
    }
    EMU_CUB_SORT(, false)
    EMU_CUB_SORT(Descending, true)
#undef EMU_CUB_SORT
};
struct DeviceSegmentedRadixSort {
#define EMU_CUB_SORT(suffix, is_descending)                                                                            \
    template <class K, class V, class N, class Begin, class End>                                                     \
    static cudaError_t SortPairs##suffix(void* storage, size_t& bytes, const K* keys, K* sorted, const V* values, V* moved, N,  \
                                         int segments, Begin begins, End ends, int begin = 0, int end = sizeof(K) * 8, \
                                         cudaStream_t = 0, HW4_FROM) {                                                \
        EMU_CUB_BEGIN("DeviceSegmentedRadixSort::SortPairs" #suffix);                                                 \
        const bool descending = is_descending;                                                                       \
        return detail::sort_pairs(call, keys, sorted, values, moved, detail::bounds_of(segments, begins, ends),        \
                                  EMU_CUB_RADIX_LESS);                                                               \
    }                                                                                                                \
    template <class K, class N, class Begin, class End>                                                              \
    static cudaError_t SortKeys##suffix(void* storage, size_t& bytes, const K* keys, K* sorted, N, int segments, Begin begins, \
                                        End ends, int begin = 0, int end = sizeof(K) * 8, cudaStream_t = 0, HW4_FROM) { \
        EMU_CUB_BEGIN("DeviceSegmentedRadixSort::SortKeys" #suffix);                                                  \
        const bool descending = is_descending;                                                                       \
        return detail::sort_pairs(call, keys, sorted, (const char*)nullptr, (char*)nullptr,                            \
                                  detail::bounds_of(segments, begins, ends), EMU_CUB_RADIX_LESS);                     \
    }
    EMU_CUB_SORT(, false)
    EMU_CUB_SORT(Descending, true)
#undef EMU_CUB_SORT
};
struct DeviceMergeSort {
#define EMU_CUB_SORT(prefix)                                                                                          \
    template <class K, class V, class N, class Less>                                                                 \
    static cudaError_t prefix##SortPairs(void* storage, size_t& bytes, K* keys, V* values, N n, Less less,             \
                                         cudaStream_t = 0, HW4_FROM) {                                                \
        EMU_CUB_BEGIN("DeviceMergeSort::" #prefix "SortPairs");                                                       \
        return detail::sort_pairs(call, (const K*)keys, keys, (const V*)values, values, {0, (size_t)n}, less);         \
    }                                                                                                                \
    template <class K, class N, class Less>                                                                          \
    static cudaError_t prefix##SortKeys(void* storage, size_t& bytes, K* keys, N n, Less less, cudaStream_t = 0, HW4_FROM) { \
        EMU_CUB_BEGIN("DeviceMergeSort::" #prefix "SortKeys");                                                        \
        return detail::sort_pairs(call, (const K*)keys, keys, (const char*)nullptr, (char*)nullptr, {0, (size_t)n}, less); \
    }
    EMU_CUB_SORT()
    EMU_CUB_SORT(Stable)
#undef EMU_CUB_SORT
};
struct DeviceSelect {
    template <class In, class Flags, class Out, class Count, class N>
    static cudaError_t Flagged(void* storage, size_t& bytes, In in, Flags flags, Out out, Count count, N n, cudaStream_t = 0,
                               HW4_FROM) {
        EMU_CUB_BEGIN("DeviceSelect::Flagged");
        EMU_CUB_NEEDS(detail::readable(call, flags, (size_t)n));
        return chosen(call, in, out, count, (size_t)n, [&](size_t i) { return (bool)flags[i]; });
    }
    template <class In, class Out, class Count, class N, class F>
    static cudaError_t If(void* storage, size_t& bytes, In in, Out out, Count count, N n, F f, cudaStream_t = 0, HW4_FROM) {
        EMU_CUB_BEGIN("DeviceSelect::If");
        return chosen(call, in, out, count, (size_t)n, [&](size_t i) { return (bool)f(in[i]); });
    }
    template <class In, class Out, class Count, class N>
    static cudaError_t Unique(void* storage, size_t& bytes, In in, Out out, Count count, N n, cudaStream_t = 0, HW4_FROM) {
        EMU_CUB_BEGIN("DeviceSelect::Unique");
        return chosen(call, in, out, count, (size_t)n, [&](size_t i) { return !i || !(in[i] == in[i - 1]); });
    }

private:
    template <class In, class Out, class Count, class F>
    static cudaError_t chosen(const detail::Call& call, In in, Out out, Count count, size_t n, const F& f) {
        EMU_CUB_NEEDS(detail::readable(call, in, n) && detail::writable(call, count, 1));
        std::vector<detail::ValueOf<In>> found;  // it may be in place
        for (size_t i = 0; i < n; i++)
            if (f(i)) found.push_back(in[i]);
        EMU_CUB_NEEDS(detail::writable(call, out, found.size()));
        for (size_t i = 0; i < found.size(); i++) out[i] = found[i];
        count[0] = (detail::ValueOf<Count>)found.size();
        return cudaSuccess;
    }
};
// Those that are chosen first, the others behind them, the last one first.
struct DevicePartition {
    template <class In, class Out, class Count, class N, class F>
    static cudaError_t If(void* storage, size_t& bytes, In in, Out out, Count count, N n, F f, cudaStream_t = 0, HW4_FROM) {
        EMU_CUB_BEGIN("DevicePartition::If");
        return parted(call, in, out, count, (size_t)n, [&](size_t i) { return (bool)f(in[i]); });
    }
    template <class In, class Flags, class Out, class Count, class N>
    static cudaError_t Flagged(void* storage, size_t& bytes, In in, Flags flags, Out out, Count count, N n, cudaStream_t = 0,
                               HW4_FROM) {
        EMU_CUB_BEGIN("DevicePartition::Flagged");
        EMU_CUB_NEEDS(detail::readable(call, flags, (size_t)n));
        return parted(call, in, out, count, (size_t)n, [&](size_t i) { return (bool)flags[i]; });
    }

private:
    template <class In, class Out, class Count, class F>
    static cudaError_t parted(const detail::Call& call, In in, Out out, Count count, size_t n, const F& f) {
        EMU_CUB_NEEDS(detail::readable(call, in, n) && detail::writable(call, out, n) && detail::writable(call, count, 1));
        size_t first = 0, last = n;
        for (size_t i = 0; i < n; i++) out[f(i) ? first++ : --last] = in[i];
        count[0] = (detail::ValueOf<Count>)first;
        return cudaSuccess;
    }
};
struct DeviceRunLengthEncode {
    template <class In, class Uniques, class Lengths, class Count, class N>
    static cudaError_t Encode(void* storage, size_t& bytes, In in, Uniques uniques, Lengths lengths, Count count, N n,
                              cudaStream_t = 0, HW4_FROM) {
        EMU_CUB_BEGIN("DeviceRunLengthEncode::Encode");
        EMU_CUB_NEEDS(detail::readable(call, in, (size_t)n) && detail::writable(call, count, 1));
        size_t runs = 0;
        for (size_t begin = 0; begin < (size_t)n; runs++) {
            size_t end = begin + 1;
            while (end < (size_t)n && in[end] == in[begin]) end++;
            uniques[runs] = in[begin], lengths[runs] = (detail::ValueOf<Lengths>)(end - begin);
            begin = end;
        }
        count[0] = (detail::ValueOf<Count>)runs;
        return cudaSuccess;
    }
};
struct DeviceHistogram {
    // `levels` bounds of levels - 1 bins of the same width; the upper one is in none.
    template <class In, class C, class L, class N>
    static cudaError_t HistogramEven(void* storage, size_t& bytes, In in, C* bins, int levels, L low, L high, N n,
                                     cudaStream_t = 0, HW4_FROM) {
        EMU_CUB_BEGIN("DeviceHistogram::HistogramEven");
        EMU_CUB_NEEDS(detail::readable(call, in, (size_t)n) && detail::writable(call, bins, (size_t)levels - 1));
        for (int b = 0; b + 1 < levels; b++) bins[b] = 0;
        for (size_t i = 0; i < (size_t)n; i++) {
            const auto x = in[i];
            if (x < low || !(x < high)) continue;
            if constexpr (std::is_integral_v<L>) bins[(unsigned long long)(x - low) * (levels - 1) / (unsigned long long)(high - low)]++;
            else bins[(int)((x - low) * ((levels - 1) / (high - low)))]++;
        }
        return cudaSuccess;
    }
    template <class In, class C, class L, class N>
    static cudaError_t HistogramRange(void* storage, size_t& bytes, In in, C* bins, int levels, const L* bounds, N n,
                                      cudaStream_t = 0, HW4_FROM) {
        EMU_CUB_BEGIN("DeviceHistogram::HistogramRange");
        EMU_CUB_NEEDS(detail::readable(call, in, (size_t)n) && detail::readable(call, bounds, (size_t)levels) &&
                      detail::writable(call, bins, (size_t)levels - 1));
        for (int b = 0; b + 1 < levels; b++) bins[b] = 0;
        for (size_t i = 0; i < (size_t)n; i++) {
            const auto at = std::upper_bound(bounds, bounds + levels, (L)in[i]) - bounds;
            if (at > 0 && at < levels) bins[at - 1]++;
        }
        return cudaSuccess;
    }
};
#undef EMU_CUB_BEGIN
#undef EMU_CUB_NEEDS
#undef EMU_CUB_RADIX_LESS

// Keeps no memory: each is the GPU's own.
struct CachingDeviceAllocator {
    template <class... A> CachingDeviceAllocator(A...) {}
    cudaError_t DeviceAllocate(void** p, size_t bytes, cudaStream_t = 0, HW4_FROM) {
        return hw4::allocate(p, bytes, "cub::CachingDeviceAllocator", hw4::DEVICE_MEMORY, from);
    }
    cudaError_t DeviceFree(void* p, HW4_FROM) { return hw4::release(p, hw4::DEVICE_MEMORY, from); }
    cudaError_t FreeAllCached() { return cudaSuccess; }
};
}  // namespace cub
#define CubDebug(e) (e)
#define CubDebugExit(e)                                                                                      \
    do {                                                                                                     \
        const cudaError_t emu_e = (e);                                                                       \
        if (emu_e != cudaSuccess) {                                                                          \
            fprintf(stderr, "CUDA error %d [%s, %d]: %s\n", emu_e, __FILE__, __LINE__, cudaGetErrorString(emu_e)); \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
