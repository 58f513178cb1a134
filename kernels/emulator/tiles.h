// Tensor copies: boxes of a tensor in global memory, to shared memory and back (PTX ISA, "Tensors"; the driver's
// cuTensorMapEncodeTiled). Pure functions: bulk.cpp says when they take place.
#pragma once
#include "descriptor.h"

#include <string.h>

namespace emu {

// Stands in for CUtensorMap: 128 opaque bytes. Dimension 0 is the one whose elements lie side by side.
struct alignas(64) TensorMap {
    char* address;
    uint64_t stride[5];  // bytes from an element to the next; [0]: its size
    uint32_t size[5];    // elements
    uint16_t box[5];     // elements; 1 beyond the rank
    uint8_t rank, swizzle, nan_outside;
};
static_assert(sizeof(TensorMap) == 128, "as CUtensorMap");

// What is wrong with a map, or null. Strides are in bytes, from dimension 1 on, as the driver takes them.
inline const char* encode_tiled(TensorMap& map, unsigned element, unsigned rank, void* address, const uint64_t* size,
                                const uint64_t* stride, const uint32_t* box, unsigned swizzle,
                                bool nan_outside = false) {
    map = TensorMap{};
    if (rank < 1 || rank > 5) return "a tensor has 1 to 5 dimensions";
    if (element != 1 && element != 2 && element != 4 && element != 8) return "an element has 1, 2, 4 or 8 bytes";
    if ((uintptr_t)address % 16) return "the tensor's address must be a multiple of 16 bytes";
    if (swizzle != 0 && swizzle != 32 && swizzle != 64 && swizzle != 128)
        return "a swizzle is of 0, 32, 64 or 128 bytes";
    for (unsigned n = 0; n < 5; n++) map.box[n] = 1, map.size[n] = 1;
    map.address = (char*)address, map.stride[0] = element;
    map.rank = (uint8_t)rank, map.swizzle = (uint8_t)swizzle, map.nan_outside = nan_outside;
    for (unsigned n = 0; n < rank; n++) {
        if (size[n] < 1 || size[n] > 1ull << 32) return "a dimension has 1 to 2^32 elements";
        if (box[n] < 1 || box[n] > 256) return "a box has 1 to 256 elements in a dimension";
        if (n > 0 && stride[n - 1] % 16) return "a stride must be a multiple of 16 bytes";
        map.size[n] = (uint32_t)size[n], map.box[n] = (uint16_t)box[n];
        if (n > 0) map.stride[n] = stride[n - 1];
    }
    if (box[0] * element % 16) return "a box's rows must be a multiple of 16 bytes";
    if (swizzle && box[0] * element > swizzle) return "a box's rows must not be longer than the swizzle";
    if (swizzle && box[0] * element < swizzle) return "a box's rows that are shorter than the swizzle are not emulated";
    return nullptr;
}
inline uint32_t box_bytes(const TensorMap& map) {
    uint32_t bytes = (uint32_t)map.stride[0];
    for (unsigned n = 0; n < 5; n++) bytes *= map.box[n];
    return bytes;
}

// Calls use(offset in shared memory from `base` on, address in the tensor, or null outside) for every element of the
// box whose first element is at `first`. The swizzle goes by the address in shared memory.
template <class Use> void each_element(const TensorMap& map, const int* first, uint32_t base, Use use) {
    const uint32_t elements = box_bytes(map) / (uint32_t)map.stride[0];
    for (uint32_t n = 0; n < elements; n++) {
        uint32_t rest = n;
        char* from = map.address;
        bool inside = true;
        for (unsigned x = 0; x < map.rank; x++) {
            const int64_t at = (int64_t)first[x] + rest % map.box[x];
            rest /= map.box[x];
            inside &= 0 <= at && at < map.size[x];
            from += at * (int64_t)map.stride[x];
        }
        use(swizzled(base + n * (uint32_t)map.stride[0], map.swizzle), inside ? from : nullptr);
    }
}
inline void load_box(const TensorMap& map, const int* first, char* shared, uint32_t to) {
    const size_t size = map.stride[0];
    each_element(map, first, to, [&](uint32_t at, const char* from) {
        if (from) memcpy(shared + at, from, size);
        else memset(shared + at, map.nan_outside ? 0xff : 0, size);
    });
}
// What lies outside is not stored.
inline void store_box(const TensorMap& map, const int* first, const char* shared, uint32_t from) {
    each_element(map, first, from, [&](uint32_t at, char* to) {
        if (to) memcpy(to, shared + at, map.stride[0]);
    });
}

}  // namespace emu
