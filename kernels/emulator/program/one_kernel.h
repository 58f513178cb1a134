// The program around one kernel that `hw4cli.emulate` runs: it reads the arguments from a file, copies arrays to the GPU,
// launches, and writes back the arrays that the kernel may change. hw4cli/emulator/program/kernel.py writes the file, and
// the few lines that name the kernel.
#pragma once
#include <type_traits>

namespace hw4 {
struct Argument {
    char kind;   // 'a': an array, '0': no memory, 'i': an integer, 'f': a floating-point number, 's': a struct's bytes
    char type;   // of an array's elements, as NumPy has it: 'f', 'i', 'u', 'b', 'c', 'V'
    char given;  // whether an array's elements are given, else nobody has written them
    uint64_t item, bytes;  // of an element, of all
    std::vector<char> data;
    void* on_gpu;
    bool changed;  // by the kernel, as far as its type says
};
[[noreturn]] inline void refuse(const std::string& sentence) {
    fprintf(stderr, "refused: %s\n", sentence.c_str());
    exit(64);
}
inline std::vector<Argument> read_arguments(const char* path) {
    FILE* file = fopen(path, "rb");
    auto number = [&] {
        uint64_t n = 0;
        if (!file || fread(&n, sizeof n, 1, file) != 1) refuse("the arguments cannot be read");
        return n;
    };
    std::vector<Argument> all(number());
    for (Argument& each : all) {
        each.kind = (char)number(), each.type = (char)number(), each.given = (char)number();
        each.item = number(), each.bytes = number(), each.on_gpu = nullptr, each.changed = false;
        if (each.kind == 'a' && !each.given) continue;
        each.data.resize(each.bytes);
        if (each.bytes && fread(each.data.data(), each.bytes, 1, file) != 1) refuse("the arguments cannot be read");
    }
    fclose(file);
    return all;
}
template <class T, bool = std::is_void<T>::value || std::is_function<T>::value> struct SizeOf {
    static constexpr size_t value = sizeof(T);
};
template <class T> struct SizeOf<T, true> { static constexpr size_t value = 0; };

inline void check_number(size_t has, size_t given, const char* kernel) {
    if (has == given) return;
    refuse(kernel + (" has " + std::to_string(has) + " arguments: ") + std::to_string(given) + " are given");
}
inline std::string which(size_t n, const char* kernel) { return "argument " + std::to_string(n + 1) + " of " + kernel; }
template <class P> P value_of(Argument& of, size_t n, const char* kernel) {
    using Value = typename std::remove_cv<P>::type;
    const std::string what = which(n, kernel);
    if constexpr (std::is_pointer<Value>::value) {
        using Element = typename std::remove_pointer<Value>::type;
        using Plain = typename std::remove_cv<Element>::type;
        if (of.kind == '0') return nullptr;
        if (of.kind != 'a') refuse(what + " is a pointer: give an array, or None");
        constexpr size_t size = SizeOf<Plain>::value;
        const bool number = std::is_arithmetic<Plain>::value;
        if (number && size != of.item)
            refuse(what + " points to numbers of " + std::to_string(size) + " bytes: the array's have " + std::to_string(of.item));
        if (number && std::is_floating_point<Plain>::value != (of.type == 'f'))
            refuse(what + (of.type == 'f' ? " points to integers: the array's elements are floating-point numbers"
                                          : " points to floating-point numbers: the array's elements are not"));
        if (of.bytes && cudaMalloc(&of.on_gpu, of.bytes) != cudaSuccess) refuse(what + " does not fit into a GPU's memory");
        if (of.given && of.bytes) cudaMemcpy(of.on_gpu, of.data.data(), of.bytes, cudaMemcpyHostToDevice);
        of.changed = !std::is_const<Element>::value;
        return (Value)of.on_gpu;
    } else if constexpr (std::is_arithmetic<Value>::value || std::is_enum<Value>::value) {
        if (of.kind == 'f') {
            double x;
            memcpy(&x, of.data.data(), sizeof x);
            if (!std::is_floating_point<Value>::value) refuse(what + " is an integer: a floating-point number is given");
            return (Value)x;
        }
        if (of.kind != 'i') refuse(what + " is a number: give an int or a float");
        long long x;
        memcpy(&x, of.data.data(), sizeof x);
        const Value value = (Value)x;
        if (std::is_integral<Value>::value && (long long)value != x)
            refuse(what + " is too small for " + std::to_string(x) + ": it has " + std::to_string(8 * sizeof value) + " bits");
        return value;
    } else {
        if (of.kind != 's') refuse(what + " is a struct: give its " + std::to_string(sizeof(Value)) + " bytes");
        if (of.bytes != sizeof(Value))
            refuse(what + " has " + std::to_string(sizeof(Value)) + " bytes: " + std::to_string(of.bytes) + " are given");
        typename std::aligned_storage<sizeof(Value), alignof(Value)>::type value;
        memcpy(&value, of.data.data(), sizeof value);
        return *(Value*)&value;
    }
}
inline void write_back(const char* path, std::vector<Argument>& all) {
    std::vector<std::vector<char>> changed;
    for (Argument& each : all) {
        changed.emplace_back(each.changed ? each.bytes : 0);
        if (each.changed && each.bytes) cudaMemcpy(changed.back().data(), each.on_gpu, each.bytes, cudaMemcpyDeviceToHost);
        if (each.on_gpu) cudaFree(each.on_gpu);
    }
    FILE* file = fopen(path, "wb");
    for (const std::vector<char>& each : changed) {
        const uint64_t bytes = each.size();
        fwrite(&bytes, sizeof bytes, 1, file), fwrite(each.data(), bytes, 1, file);
    }
    fclose(file);
}
}  // namespace hw4

