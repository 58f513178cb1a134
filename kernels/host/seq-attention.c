// seq-attention INPUTFILE OUTPUTFILE: attention as it is defined, on one core: what parallel programs are compared with.
//
// O = softmax(Q K^T / sqrt(d)) V, a row at a time: all scores of the row, their maximum, the weights, and the mean of V.
// Build: make seq-attention

#include <math.h>

#include "seq.h"

static void attention(const float* q, const float* k, const float* v, float* o, int N, int d) {
    const float scale = 1 / sqrtf(d);
    float* S = floats(N);  // of a row; turns into P in place
    for (int i = 0; i < N; i++) {
        float m = -INFINITY, l = 0;
        for (int j = 0; j < N; j++) {
            float s = 0;
            for (int c = 0; c < d; c++) s += q[(size_t)i * d + c] * k[(size_t)j * d + c];
            S[j] = scale * s;
            m = fmaxf(m, S[j]);
        }
        for (int j = 0; j < N; j++) l += S[j] = expf(S[j] - m);

        float* O = o + (size_t)i * d;
        for (int c = 0; c < d; c++) O[c] = 0;
        for (int j = 0; j < N; j++)
            for (int c = 0; c < d; c++) O[c] += S[j] / l * v[(size_t)j * d + c];
    }
    free(S);
}
