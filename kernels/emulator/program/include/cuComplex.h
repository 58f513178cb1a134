// Stands in for CUDA's header: complex numbers as pairs.
#pragma once

#define EMU_COMPLEX(T, T2, C, make, suffix, root)                                                              \
    typedef T2 C;                                                                                              \
    inline T cuCreal##suffix(C z) { return z.x; }                                                              \
    inline T cuCimag##suffix(C z) { return z.y; }                                                              \
    inline C make(T x, T y) { return {x, y}; }                                                                 \
    inline C cuConj##suffix(C z) { return {z.x, -z.y}; }                                                       \
    inline C cuCadd##suffix(C z, C w) { return {z.x + w.x, z.y + w.y}; }                                       \
    inline C cuCsub##suffix(C z, C w) { return {z.x - w.x, z.y - w.y}; }                                       \
    inline C cuCmul##suffix(C z, C w) { return {z.x * w.x - z.y * w.y, z.x * w.y + z.y * w.x}; }               \
    inline C cuCdiv##suffix(C z, C w) {                                                                        \
        /* as large as |w| may be, nothing overflows */                                                        \
        const T s = 1 / (fabs(w.x) + fabs(w.y)), a = z.x * s, b = z.y * s, c = w.x * s, d = w.y * s;           \
        const T n = 1 / (c * c + d * d);                                                                       \
        return {(a * c + b * d) * n, (b * c - a * d) * n};                                                     \
    }                                                                                                          \
    inline C cuCfma##suffix(C z, C w, C u) {                                                                   \
        const C p = cuCmul##suffix(z, w);                                                                      \
        return {p.x + u.x, p.y + u.y};                                                                         \
    }                                                                                                          \
    inline T cuCabs##suffix(C z) { return root(z.x, z.y); }
EMU_COMPLEX(float, float2, cuFloatComplex, make_cuFloatComplex, f, hypotf)
EMU_COMPLEX(double, double2, cuDoubleComplex, make_cuDoubleComplex, , hypot)
typedef cuFloatComplex cuComplex;
inline cuComplex make_cuComplex(float x, float y) { return {x, y}; }
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex z) { return {z.x, z.y}; }
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex z) { return {(float)z.x, (float)z.y}; }
