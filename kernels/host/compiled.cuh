// A kernel for one tile, as NAME::compiled. Include it once for each, with NAME, FLASH (else it is split), D, BR, BC, THREADS
// and BLOCKS defined, for split STAGES and INBLOCK, too: the file of the kernel is the same text every time, a namespace
// keeps its names apart, macros those of its extern "C" functions.

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#if FLASH
#define flash JOIN(NAME, _rows)
#define flash_combine JOIN(NAME, _combine)
#else
#define split JOIN(NAME, _rows)
#define split_convert JOIN(NAME, _convert)
#define split_combine JOIN(NAME, _combine)
#endif

namespace NAME {
#if FLASH
#include "../flash.cu"
const Compiled compiled{nullptr, flash, flash_combine, {BR, BC, BLOCKS, 4096, 64}, D, THREADS,
                        4 * (D * (2 * BC + BR) + BR * BC), 0};
#else
#include "../split.cu"
const Compiled compiled{INBLOCK ? nullptr : split_convert, split, split_combine, {BR, BC, BLOCKS, INT_MAX, 256}, D,
                        THREADS, STAGES * (6 * BC * D + 16), (1 - INBLOCK) * 6 * D};
#endif
}  // namespace NAME

#undef flash
#undef flash_combine
#undef split
#undef split_convert
#undef split_combine
#undef NAME
#undef FLASH
#undef D
#undef BR
#undef BC
#undef THREADS
#undef BLOCKS
#undef STAGES
#undef INBLOCK
