// CUDA's vector types beyond those of language.h.
#pragma once

struct char1 { signed char x; };
inline char1 make_char1(signed char x) { return {x}; }
struct char2 { signed char x, y; } __attribute__((aligned(2)));
inline char2 make_char2(signed char x, signed char y) { return {x, y}; }
struct char3 { signed char x, y, z; };
inline char3 make_char3(signed char x, signed char y, signed char z) { return {x, y, z}; }
struct char4 { signed char x, y, z, w; } __attribute__((aligned(4)));
inline char4 make_char4(signed char x, signed char y, signed char z, signed char w) { return {x, y, z, w}; }
struct uchar1 { unsigned char x; };
inline uchar1 make_uchar1(unsigned char x) { return {x}; }
struct uchar2 { unsigned char x, y; } __attribute__((aligned(2)));
inline uchar2 make_uchar2(unsigned char x, unsigned char y) { return {x, y}; }
struct uchar3 { unsigned char x, y, z; };
inline uchar3 make_uchar3(unsigned char x, unsigned char y, unsigned char z) { return {x, y, z}; }
struct uchar4 { unsigned char x, y, z, w; } __attribute__((aligned(4)));
inline uchar4 make_uchar4(unsigned char x, unsigned char y, unsigned char z, unsigned char w) { return {x, y, z, w}; }
struct short1 { short x; };
inline short1 make_short1(short x) { return {x}; }
struct short2 { short x, y; } __attribute__((aligned(4)));
inline short2 make_short2(short x, short y) { return {x, y}; }
struct short3 { short x, y, z; };
inline short3 make_short3(short x, short y, short z) { return {x, y, z}; }
struct short4 { short x, y, z, w; } __attribute__((aligned(8)));
inline short4 make_short4(short x, short y, short z, short w) { return {x, y, z, w}; }
struct ushort1 { unsigned short x; };
inline ushort1 make_ushort1(unsigned short x) { return {x}; }
struct ushort2 { unsigned short x, y; } __attribute__((aligned(4)));
inline ushort2 make_ushort2(unsigned short x, unsigned short y) { return {x, y}; }
struct ushort3 { unsigned short x, y, z; };
inline ushort3 make_ushort3(unsigned short x, unsigned short y, unsigned short z) { return {x, y, z}; }
struct ushort4 { unsigned short x, y, z, w; } __attribute__((aligned(8)));
inline ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z, unsigned short w) { return {x, y, z, w}; }
struct int1 { int x; };
inline int1 make_int1(int x) { return {x}; }
struct int3 { int x, y, z; };
inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
struct uint1 { unsigned x; };
inline uint1 make_uint1(unsigned x) { return {x}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
struct long1 { long x; };
inline long1 make_long1(long x) { return {x}; }
struct long2 { long x, y; } __attribute__((aligned(16)));
inline long2 make_long2(long x, long y) { return {x, y}; }
struct long3 { long x, y, z; };
inline long3 make_long3(long x, long y, long z) { return {x, y, z}; }
struct long4 { long x, y, z, w; } __attribute__((aligned(16)));
inline long4 make_long4(long x, long y, long z, long w) { return {x, y, z, w}; }
struct ulong1 { unsigned long x; };
inline ulong1 make_ulong1(unsigned long x) { return {x}; }
struct ulong2 { unsigned long x, y; } __attribute__((aligned(16)));
inline ulong2 make_ulong2(unsigned long x, unsigned long y) { return {x, y}; }
struct ulong3 { unsigned long x, y, z; };
inline ulong3 make_ulong3(unsigned long x, unsigned long y, unsigned long z) { return {x, y, z}; }
struct ulong4 { unsigned long x, y, z, w; } __attribute__((aligned(16)));
inline ulong4 make_ulong4(unsigned long x, unsigned long y, unsigned long z, unsigned long w) { return {x, y, z, w}; }
struct longlong1 { long long x; };
inline longlong1 make_longlong1(long long x) { return {x}; }
struct longlong2 { long long x, y; } __attribute__((aligned(16)));
inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
struct longlong3 { long long x, y, z; };
inline longlong3 make_longlong3(long long x, long long y, long long z) { return {x, y, z}; }
struct longlong4 { long long x, y, z, w; } __attribute__((aligned(16)));
inline longlong4 make_longlong4(long long x, long long y, long long z, long long w) { return {x, y, z, w}; }
struct ulonglong1 { unsigned long long x; };
inline ulonglong1 make_ulonglong1(unsigned long long x) { return {x}; }
struct ulonglong2 { unsigned long long x, y; } __attribute__((aligned(16)));
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
struct ulonglong3 { unsigned long long x, y, z; };
inline ulonglong3 make_ulonglong3(unsigned long long x, unsigned long long y, unsigned long long z) { return {x, y, z}; }
struct ulonglong4 { unsigned long long x, y, z, w; } __attribute__((aligned(16)));
inline ulonglong4 make_ulonglong4(unsigned long long x, unsigned long long y, unsigned long long z, unsigned long long w) { return {x, y, z, w}; }
struct float1 { float x; };
inline float1 make_float1(float x) { return {x}; }
struct double1 { double x; };
inline double1 make_double1(double x) { return {x}; }
struct double3 { double x, y, z; };
inline double3 make_double3(double x, double y, double z) { return {x, y, z}; }
struct double4 { double x, y, z, w; } __attribute__((aligned(16)));
inline double4 make_double4(double x, double y, double z, double w) { return {x, y, z, w}; }
