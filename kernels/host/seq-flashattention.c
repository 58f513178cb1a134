// seq-flashattention INPUTFILE OUTPUTFILE: FlashAttention's Algorithm 1 on one core: what parallel programs are compared with.
//
// Tiles of K and V outside, tiles of Q inside; of each row there are m, l and what O would be without further keys. The
// numbers are the algorithm's lines (Dao et al. 2022); the scores are divided by sqrt(d), which it leaves out. paper.cu is
// the same on a GPU.
// Build: make seq-flashattention

#include <math.h>

#include "seq.h"

enum { BR = 32, BC = 32 };

static int min(int a, int b) { return a < b ? a : b; }

// What one tile of keys changes in one tile of rows: lines 8 to 13. All pointers are to the tiles' first rows.
static void take_tile(const float* q, const float* k, const float* v, float* O, float* l, float* m, int rows, int keys, int d)
{
    const float scale = 1 / sqrtf(d);
    float S[BR][BC];  // turns into P in place
    for (int i = 0; i < rows; i++) {
        float m_tile = -INFINITY, l_tile = 0;
        for (int j = 0; j < keys; j++) {  // 9
            float s = 0;
            for (int c = 0; c < d; c++) s += q[(size_t)i * d + c] * k[(size_t)j * d + c];
            S[i][j] = scale * s;
            m_tile = fmaxf(m_tile, S[i][j]);
        }
        for (int j = 0; j < keys; j++) l_tile += S[i][j] = expf(S[i][j] - m_tile);  // 10

        const float m_new = fmaxf(m[i], m_tile), old = expf(m[i] - m_new), now = expf(m_tile - m_new);  // 11
        const float l_new = old * l[i] + now * l_tile;
        for (int c = 0; c < d; c++) O[(size_t)i * d + c] *= old * l[i] / l_new;  // 12
        for (int j = 0; j < keys; j++)
            for (int c = 0; c < d; c++) O[(size_t)i * d + c] += now * S[i][j] / l_new * v[(size_t)j * d + c];
        l[i] = l_new, m[i] = m_new;  // 13
    }
}

static void attention(const float* q, const float* k, const float* v, float* o, int N, int d) {
    float *l = floats(N), *m = floats(N);
    for (int i = 0; i < N; i++) l[i] = 0, m[i] = -INFINITY;  // 2
    for (size_t e = 0; e < (size_t)N * d; e++) o[e] = 0;
    for (int j = 0; j < N; j += BC)  // 5
        for (int i = 0; i < N; i += BR)  // 7
            take_tile(q + (size_t)i * d, k + (size_t)j * d, v + (size_t)j * d, o + (size_t)i * d, l + i, m + i,
                      min(BR, N - i), min(BC, N - j), d);
    free(l);
    free(m);
}
