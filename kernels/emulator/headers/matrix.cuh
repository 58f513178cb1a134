// Stands in for kernels/hip/matrix.cuh where kernels run on the CPU: the same function, in C++.

struct Sums {
    float v[16];
    float& operator[](int n) { return v[n]; }
};

struct MatrixProduct {
    float a, b;
    Sums sums;
    static void all(void* const* lane, int n) {
        auto at = [&](int l) -> MatrixProduct& { return *(MatrixProduct*)lane[l]; };
        for (int l = 0; l < n; l++)
            for (int r = 0; r < 16; r++)
                for (int k = 0; k < 2; k++)
                    at(l).sums[r] = fmaf(at(8 * (r / 4) + 4 * (l / 32) + r % 4 + 32 * k).a, at(l % 32 + 32 * k).b,
                                         at(l).sums[r]);
    }
};
inline Sums multiply_add(float a, float b, Sums sums, EMU_HERE) {
    MatrixProduct mine{a, b, sums};
    emu::meet(EMU_SITE("mfma"), emu::WARP, ~0ull, &mine, MatrixProduct::all);
    return mine.sums;
}
