/* Sixteen f32 lanes under one set of names for every instruction set, so that a kernel is written
 * once and compiled for each (see isa_*.c). Sums over lanes and everything that is not vfma run
 * in one order with separate multiplies and adds: those results have the same bits everywhere.
 */
#ifndef GOLEM_SIMD_H
#define GOLEM_SIMD_H

#include <stdint.h>
#include <string.h>

enum { LANES = 16 };

#if defined(GOLEM_AVX512)
#include <immintrin.h>

typedef __m512 vf;
typedef struct { __m512d low, high; } vd;     /* sixteen f64 lanes */

static inline vf vset(float x) { return _mm512_set1_ps(x); }
static inline vf vload(const float *p) { return _mm512_loadu_ps(p); }
static inline void vstore(float *p, vf x) { _mm512_storeu_ps(p, x); }
/* the first n lanes, the others 0 */
static inline vf vload_n(const float *p, int n) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
static inline void vstore_n(float *p, vf x, int n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x);
}
static inline vf vadd(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vsub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vmul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vdiv(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vfma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
/* b where either is NaN */
static inline vf vmax(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vmin(vf a, vf b) { return _mm512_min_ps(a, b); }
/* lanes of x where a < b, of y elsewhere */
static inline vf vless(vf a, vf b, vf x, vf y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
/* 2^n of whole numbers n, -126 .. 127 */
static inline vf vpower2(vf n) {
    __m512i e = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(e, 23));
}
static inline vf vload_half(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline void vstore_half(uint16_t *p, vf x) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
/* sixteen signed bytes; a half in every lane; sixteen bf16 */
static inline vf vload_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static inline vf vset_half(uint16_t x) { return _mm512_cvtph_ps(_mm256_set1_epi16((short)x)); }
static inline vf vload_bf16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
/* the low, or the high, four bits of sixteen bytes, less 8 */
static inline vf vload_nibbles(const uint8_t *p, int high) {
    __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    wide = high ? _mm512_srli_epi32(wide, 4) : _mm512_and_si512(wide, _mm512_set1_epi32(15));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(wide, _mm512_set1_epi32(8)));
}
/* the same, times a scale: what is looked up in a table of all sixteen products */
static inline vf vscaled_nibbles(vf scale, const uint8_t *p, int high) {
    const __m512 codes = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    if (high) wide = _mm512_srli_epi32(wide, 4);
    return _mm512_permutexvar_ps(wide, _mm512_mul_ps(scale, codes));
}
static inline float vsum(vf x) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
static inline vd vd_zero(void) { return (vd){_mm512_setzero_pd(), _mm512_setzero_pd()}; }
static inline vd vd_of(vf x) {
    return (vd){_mm512_cvtps_pd(_mm512_castps512_ps256(x)),
                _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))};
}
static inline vd vd_add(vd a, vd b) {
    return (vd){_mm512_add_pd(a.low, b.low), _mm512_add_pd(a.high, b.high)};
}
static inline vd vd_mul(vd a, vd b) {
    return (vd){_mm512_mul_pd(a.low, b.low), _mm512_mul_pd(a.high, b.high)};
}
static inline void vd_store(double *p, vd x) {
    _mm512_storeu_pd(p, x.low);
    _mm512_storeu_pd(p + 8, x.high);
}
/* rows a, b of an interleaved pair: p[0], p[2] .. and p[1], p[3] .. */
static inline void vload_pairs(const float *p, vf *even, vf *odd) {
    const __m512i e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i o = _mm512_add_epi32(e, _mm512_set1_epi32(1));
    vf a = vload(p), b = vload(p + 16);
    *even = _mm512_permutex2var_ps(a, e, b);
    *odd = _mm512_permutex2var_ps(a, o, b);
}
static inline void vstore_pairs(float *p, vf even, vf odd) {
    const __m512i l = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i h = _mm512_add_epi32(l, _mm512_set1_epi32(8));
    vstore(p, _mm512_permutex2var_ps(even, l, odd));
    vstore(p + 16, _mm512_permutex2var_ps(even, h, odd));
}

#elif defined(GOLEM_AVX2)
#include <immintrin.h>

typedef struct { __m256 a, b; } vf;
typedef struct { __m256d q[4]; } vd;

#define PER_HALF(op, x, y) ((vf){op((x).a, (y).a), op((x).b, (y).b)})
static inline vf vset(float x) { return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline vf vload(const float *p) { return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void vstore(float *p, vf x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
static inline vf vload_n(const float *p, int n) {
    float t[LANES] = {0};
    memcpy(t, p, (size_t)n * 4);
    return vload(t);
}
static inline void vstore_n(float *p, vf x, int n) {
    float t[LANES];
    vstore(t, x);
    memcpy(p, t, (size_t)n * 4);
}
static inline vf vadd(vf x, vf y) { return PER_HALF(_mm256_add_ps, x, y); }
static inline vf vsub(vf x, vf y) { return PER_HALF(_mm256_sub_ps, x, y); }
static inline vf vmul(vf x, vf y) { return PER_HALF(_mm256_mul_ps, x, y); }
static inline vf vdiv(vf x, vf y) { return PER_HALF(_mm256_div_ps, x, y); }
static inline vf vfma(vf x, vf y, vf z) {
    return (vf){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
static inline vf vmax(vf x, vf y) { return PER_HALF(_mm256_max_ps, x, y); }
static inline vf vmin(vf x, vf y) { return PER_HALF(_mm256_min_ps, x, y); }
static inline vf vless(vf a, vf b, vf x, vf y) {
    return (vf){_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(a.a, b.a, _CMP_LT_OQ)),
                _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(a.b, b.b, _CMP_LT_OQ))};
}
static inline __m256 power2_half(__m256 n) {
    __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
}
static inline vf vpower2(vf n) { return (vf){power2_half(n.a), power2_half(n.b)}; }
static inline vf vload_half(const uint16_t *p) {
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
static inline void vstore_half(uint16_t *p, vf x) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
static inline __m256 bytes_half(__m256i wide) { return _mm256_cvtepi32_ps(wide); }
static inline vf vload_i8(const int8_t *p) {
    return (vf){bytes_half(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))),
                bytes_half(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8))))};
}
static inline vf vset_half(uint16_t x) {
    __m256 y = _mm256_cvtph_ps(_mm_set1_epi16((short)x));
    return (vf){y, y};
}
static inline __m256 bf16_half(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline vf vload_bf16(const uint16_t *p) { return (vf){bf16_half(p), bf16_half(p + 8)}; }
static inline __m256 nibbles_half(const uint8_t *p, int high) {
    __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    wide = high ? _mm256_srli_epi32(wide, 4) : _mm256_and_si256(wide, _mm256_set1_epi32(15));
    return bytes_half(_mm256_sub_epi32(wide, _mm256_set1_epi32(8)));
}
static inline vf vload_nibbles(const uint8_t *p, int high) {
    return (vf){nibbles_half(p, high), nibbles_half(p + 8, high)};
}
static inline float vsum(vf x) {
    __m256 a = _mm256_add_ps(x.a, x.b);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
static inline vd vd_zero(void) {
    __m256d z = _mm256_setzero_pd();
    return (vd){{z, z, z, z}};
}
static inline vd vd_of(vf x) {
    return (vd){{_mm256_cvtps_pd(_mm256_castps256_ps128(x.a)),
                 _mm256_cvtps_pd(_mm256_extractf128_ps(x.a, 1)),
                 _mm256_cvtps_pd(_mm256_castps256_ps128(x.b)),
                 _mm256_cvtps_pd(_mm256_extractf128_ps(x.b, 1))}};
}
static inline vd vd_add(vd x, vd y) {
    for (int i = 0; i < 4; i++) x.q[i] = _mm256_add_pd(x.q[i], y.q[i]);
    return x;
}
static inline vd vd_mul(vd x, vd y) {
    for (int i = 0; i < 4; i++) x.q[i] = _mm256_mul_pd(x.q[i], y.q[i]);
    return x;
}
static inline void vd_store(double *p, vd x) {
    for (int i = 0; i < 4; i++) _mm256_storeu_pd(p + 4 * i, x.q[i]);
}

#elif defined(GOLEM_NEON)
#include "simd_neon.h"
#else

typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef struct { double lane[LANES]; } vd;

static inline vf vload(const float *p) {
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
static inline vf vset(float x) { return (vf){0} + x; }
static inline void vstore(float *p, vf x) { memcpy(p, &x, sizeof x); }
static inline vf vload_n(const float *p, int n) {
    float t[LANES] = {0};
    memcpy(t, p, (size_t)n * 4);
    return vload(t);
}
static inline void vstore_n(float *p, vf x, int n) { memcpy(p, &x, (size_t)n * 4); }
static inline vf vadd(vf x, vf y) { return x + y; }
static inline vf vsub(vf x, vf y) { return x - y; }
static inline vf vmul(vf x, vf y) { return x * y; }
static inline vf vdiv(vf x, vf y) { return x / y; }
static inline vf vfma(vf x, vf y, vf z) { return x * y + z; }
static inline vf vless(vf a, vf b, vf x, vf y) {
    vi m = a < b;
    return (vf)((m & (vi)x) | (~m & (vi)y));
}
static inline vf vmax(vf x, vf y) { return vless(y, x, x, y); }
static inline vf vmin(vf x, vf y) { return vless(x, y, x, y); }
static inline vf vpower2(vf n) {
    /* adding 1.5 * 2^23 leaves a whole number in the low bits */
    vi e = (vi)(n + 12582912.0f) - (vi)vset(12582912.0f) + 127;
    return (vf)(e << 23);
}
static inline vf vload_half(const uint16_t *p) {
    union { uint32_t u[LANES]; float f[LANES]; } t;
    for (int i = 0; i < LANES; i++) {
        uint32_t sign = (uint32_t)(p[i] & 0x8000) << 16, rest = (uint32_t)(p[i] & 0x7fff) << 13;
        union { uint32_t u; float f; } small = {.f = 5.192296858534828e33f};   /* 2^112 */
        union { uint32_t u; float f; } scaled = {.u = rest};
        scaled.f *= small.f;
        t.u[i] = sign | (rest >= 0x0f800000 ? (rest | 0x7f800000) : scaled.u);
    }
    return vload(t.f);
}
static inline uint16_t half_of(float x) {
    union { float f; uint32_t u; } v = {.f = x};
    uint32_t sign = v.u >> 16 & 0x8000, rest = v.u & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
    if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000) {   /* a subnormal half: let the addition round to its last place */
        union { float f; uint32_t u; } s = {.u = rest};
        s.f += 0.5f;
        return (uint16_t)(sign | (s.u - 0x3f000000));
    }
    rest += 0x0fff + (rest >> 13 & 1);
    return (uint16_t)(sign | ((rest - 0x38000000) >> 13));
}
static inline void vstore_half(uint16_t *p, vf x) {
    for (int i = 0; i < LANES; i++) p[i] = half_of(x[i]);
}
static inline vf vload_i8(const int8_t *p) {
    vf y;
    for (int i = 0; i < LANES; i++) y[i] = (float)p[i];
    return y;
}
static inline vf vset_half(uint16_t x) {
    uint16_t all[LANES];
    for (int i = 0; i < LANES; i++) all[i] = x;
    return vload_half(all);
}
static inline vf vload_bf16(const uint16_t *p) {
    uint32_t bits[LANES];
    vf y;
    for (int i = 0; i < LANES; i++) bits[i] = (uint32_t)p[i] << 16;
    memcpy(&y, bits, sizeof y);
    return y;
}
static inline vf vload_nibbles(const uint8_t *p, int high) {
    vf y;
    for (int i = 0; i < LANES; i++) y[i] = (float)((high ? p[i] >> 4 : p[i] & 15) - 8);
    return y;
}
static inline float vsum(vf x) {
    float t[LANES];
    vstore(t, x);
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) t[i] += t[i + half];
    return t[0];
}
static inline vd vd_zero(void) { return (vd){{0}}; }
static inline vd vd_of(vf x) {
    vd y;
    for (int i = 0; i < LANES; i++) y.lane[i] = (double)x[i];
    return y;
}
static inline vd vd_add(vd x, vd y) {
    for (int i = 0; i < LANES; i++) x.lane[i] += y.lane[i];
    return x;
}
static inline vd vd_mul(vd x, vd y) {
    for (int i = 0; i < LANES; i++) x.lane[i] *= y.lane[i];
    return x;
}
static inline void vd_store(double *p, vd x) { memcpy(p, x.lane, sizeof x.lane); }
#endif

#if !defined(GOLEM_AVX512) && !defined(GOLEM_NEON)
static inline void vload_pairs(const float *p, vf *even, vf *odd) {
    float a[LANES], b[LANES];
    for (int i = 0; i < LANES; i++) a[i] = p[2 * i], b[i] = p[2 * i + 1];
    *even = vload(a);
    *odd = vload(b);
}
static inline void vstore_pairs(float *p, vf even, vf odd) {
    float a[LANES], b[LANES];
    vstore(a, even);
    vstore(b, odd);
    for (int i = 0; i < LANES; i++) p[2 * i] = a[i], p[2 * i + 1] = b[i];
}
#endif

static inline vf vzero(void) { return vset(0.0f); }

/* sum of sixteen f64 lanes, halves first */
static inline double vd_sum(vd x) {
    double t[LANES];
    vd_store(t, x);
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) t[i] += t[i + half];
    return t[0];
}

/* the largest lane; any lane where some are NaN */
#ifndef GOLEM_NEON
static inline float vmax_lane(vf x) {
#if defined(GOLEM_AVX512) || defined(GOLEM_AVX2)
#if defined(GOLEM_AVX512)
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
#else
    __m256 a = _mm256_max_ps(x.a, x.b);
#endif
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
#else
    float t[LANES];
    vstore(t, x);
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) t[i] = t[i] > t[i + half] ? t[i] : t[i + half];
    return t[0];
#endif
}
#endif

/* element i .. of a row: whole vectors, then what is left */
#define FOR_LANES(i, width, count)                                                  \
    for (int i = 0, count = LANES; i < (width); i += LANES)                         \
        if ((count = (width) - i < LANES ? (width) - i : LANES), 1)

static inline vf vread(const float *p, int count) {
    return count == LANES ? vload(p) : vload_n(p, count);
}
static inline void vwrite(float *p, vf x, int count) {
    if (count == LANES) vstore(p, x);
    else vstore_n(p, x, count);
}

#endif
