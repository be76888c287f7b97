/* exp over many logits: nearly all of what a draw from a whole vocabulary costs.
 *
 * The method and the numbers are those of the C library's expf (glibc 2.28 and newer), so that
 * draws stay what they are with it: 2^(k/32) from a table, times a polynomial, in float64 without
 * fused multiply-adds. So the bits are the same on every machine and instruction set; of all
 * floats <= 0, glibc's fused variant rounds one differently (-63.09946).
 */

#include <string.h>

#include "chain.h"

#define PER_NAT (32 * 0x1.71547652b82fep+0) /* 32 / ln 2 */
#define CUBE (0x1.c6af84b912394p-5 / 32 / 32 / 32)
#define SQUARE (0x1.ebfce50fac4f3p-3 / 32 / 32)
#define LINEAR (0x1.62e42ff0c52d6p-1 / 32)
#define ROUNDER 0x1.8p52   /* adding it leaves the nearest integer in the low bits */
#define LOWEST (-104.0f) /* exp of it and of all below is 0 */

static const double roots[32] = { /* 2^(k/32) */
    0x1.0000000000000p+0, 0x1.059b0d3158574p+0, 0x1.0b5586cf9890fp+0, 0x1.11301d0125b51p+0,
    0x1.172b83c7d517bp+0, 0x1.1d4873168b9aap+0, 0x1.2387a6e756238p+0, 0x1.29e9df51fdee1p+0,
    0x1.306fe0a31b715p+0, 0x1.371a7373aa9cbp+0, 0x1.3dea64c123422p+0, 0x1.44e086061892dp+0,
    0x1.4bfdad5362a27p+0, 0x1.5342b569d4f82p+0, 0x1.5ab07dd485429p+0, 0x1.6247eb03a5585p+0,
    0x1.6a09e667f3bcdp+0, 0x1.71f75e8ec5f74p+0, 0x1.7a11473eb0187p+0, 0x1.82589994cce13p+0,
    0x1.8ace5422aa0dbp+0, 0x1.93737b0cdc5e5p+0, 0x1.9c49182a3f090p+0, 0x1.a5503b23e255dp+0,
    0x1.ae89f995ad3adp+0, 0x1.b7f76f2fb5e47p+0, 0x1.c199bdd85529cp+0, 0x1.cb720dcef9069p+0,
    0x1.d5818dcfba487p+0, 0x1.dfc97337b9b5fp+0, 0x1.ea4afa2a490dap+0, 0x1.f50765b6e4540p+0,
};

/* exp(x - shift). x - shift <= 88. */
static inline float exp_one(float x, float shift) {
    float d = x - shift;
    double z = (d < LOWEST ? LOWEST : d) * PER_NAT;
    double k = z + ROUNDER;
    uint64_t whole, scale;
    memcpy(&whole, &k, 8);
    double r = z - (k - ROUNDER);
    memcpy(&scale, &roots[whole & 31], 8);
    scale += whole >> 5 << 52;
    double s;
    memcpy(&s, &scale, 8);
    return (float)(((CUBE * r + SQUARE) * (r * r) + (LINEAR * r + 1.0)) * s);
}

static void exp_portable(const float *x, float shift, float *y, int n) {
    for (int i = 0; i < n; i++) y[i] = exp_one(x[i], shift);
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* The same operations on 8 at once; the table lies in four registers. */
__attribute__((target("avx512f"))) static void exp_avx512(const float *x, float shift, float *y,
                                                          int n) {
    const __m512d low = _mm512_loadu_pd(roots), high = _mm512_loadu_pd(roots + 8);
    const __m512d low2 = _mm512_loadu_pd(roots + 16), high2 = _mm512_loadu_pd(roots + 24);
    const __m512d rounder = _mm512_set1_pd(ROUNDER);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 d = _mm256_max_ps(_mm256_set1_ps(LOWEST),
                                 _mm256_sub_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(shift)));
        __m512d z = _mm512_mul_pd(_mm512_cvtps_pd(d), _mm512_set1_pd(PER_NAT));
        __m512d k = _mm512_add_pd(z, rounder);
        __m512i whole = _mm512_castpd_si512(k);
        __m512d r = _mm512_sub_pd(z, _mm512_sub_pd(k, rounder));
        __m512d root = _mm512_mask_blend_pd(
            _mm512_test_epi64_mask(whole, _mm512_set1_epi64(16)),
            _mm512_permutex2var_pd(low, whole, high), _mm512_permutex2var_pd(low2, whole, high2));
        __m512d s = _mm512_castsi512_pd(
            _mm512_add_epi64(_mm512_castpd_si512(root),
                             _mm512_slli_epi64(_mm512_srli_epi64(whole, 5), 52)));
        __m512d p = _mm512_add_pd(_mm512_mul_pd(_mm512_set1_pd(CUBE), r), _mm512_set1_pd(SQUARE));
        __m512d q = _mm512_add_pd(_mm512_mul_pd(_mm512_set1_pd(LINEAR), r), _mm512_set1_pd(1.0));
        q = _mm512_add_pd(_mm512_mul_pd(p, _mm512_mul_pd(r, r)), q);
        _mm256_storeu_ps(y + i, _mm512_cvtpd_ps(_mm512_mul_pd(q, s)));
    }
    for (; i < n; i++) y[i] = exp_one(x[i], shift);
}

void exp_row(const float *x, float shift, float *y, int n) {
    if (__builtin_cpu_supports("avx512f"))
        exp_avx512(x, shift, y, n);
    else
        exp_portable(x, shift, y, n);
}
#else
void exp_row(const float *x, float shift, float *y, int n) { exp_portable(x, shift, y, n); }
#endif
