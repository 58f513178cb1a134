// A matrix in shared memory as a descriptor of wgmma gives it (PTX ISA, "Matrix-Descriptor Format", "Canonical
// Layouts").
//
// A matrix has lines: rows of a, columns of b. Along k it is 32 bytes: 16 elements of 16 bits, or 32 of 8. K-major: a
// line's elements lie side by side; else (MN-major, 16-bit elements alone) those of the same k do.
#pragma once
#include <stdint.h>

namespace emu {

// What a swizzle of 32, 64 or 128 bytes (0: none) does to an address: its 16-byte chunks change places within a row of
// so many bytes, by where the row lies in a pattern of eight times 128 bytes at most. Copies of tensors and wgmma agree
// on it.
constexpr uint32_t swizzled(uint32_t address, unsigned bytes) {
    const uint32_t mask = bytes ? bytes / 16 - 1 : 0;
    return address ^ (address >> 7 & mask) << 4;
}

struct Descriptor {
    uint32_t start, leading, stride, base;  // bytes; the base offset must be 0
    unsigned swizzle;                       // bytes: 0, 32, 64 or 128

    constexpr explicit Descriptor(uint64_t x)
        : start((x & 0x3fff) << 4), leading((x >> 16 & 0x3fff) << 4), stride((x >> 32 & 0x3fff) << 4),
          base(x >> 49 & 7), swizzle((x >> 62) == 0 ? 0 : 256u >> (x >> 62)) {}

    // Where a 16-byte chunk lies that holds, K-major, elements of one line; `half` is which, of the two along k.
    constexpr uint32_t chunk_of_line(int line, int half) const {
        const uint32_t row = swizzle ? swizzle : 16;
        return swizzled(start + line % 8 * row + line / 8 * stride + half * (swizzle ? 16 : leading), swizzle);
    }
    // Where a chunk lies that holds, MN-major, eight lines' elements of one k; `eight` is which eight lines.
    constexpr uint32_t chunk_of_lines(int k, int eight) const {
        if (!swizzle) return start + k % 8 * 16 + k / 8 * leading + eight * stride;
        const int chunks = swizzle / 16;
        const uint32_t column = eight % chunks * 16 + eight / chunks * leading;
        return swizzled(start + column + k % 8 * swizzle + k / 8 * stride, swizzle);
    }
};

// The matrix as lines of `Depth` elements, K-major or MN-major, from memory whose offset 0 is `shared`.
template <class Decode>
void gather_lines(float* to, const char* shared, Descriptor d, int lines, int depth, bool k_major, Decode decode) {
    const int size = 32 / depth, chunk = 16 / size;  // bytes of an element; elements of a chunk
    for (int line = 0; line < lines; line++)
        for (int k = 0; k < depth; k++) {
            const char* at = k_major ? shared + d.chunk_of_line(line, k / chunk) + k % chunk * size
                                     : shared + d.chunk_of_lines(k, line / chunk) + line % chunk * size;
            to[line * depth + k] = decode(at);
        }
}
// Calls use(address) for every 16-byte chunk of the matrix.
template <class Use> void each_chunk(Descriptor d, int lines, int depth, bool k_major, Use use) {
    if (k_major)
        for (int n = 0; n < lines * 2; n++) use(d.chunk_of_line(n / 2, n % 2));
    else
        for (int n = 0; n < depth * (lines / 8); n++) use(d.chunk_of_lines(n % depth, n / depth));
}

}  // namespace emu
