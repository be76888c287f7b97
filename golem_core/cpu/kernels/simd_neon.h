/* The names of simd.h for AArch64: sixteen lanes are four NEON registers, f64 lanes eight. Included
 * by simd.h alone. Everything here is in the baseline of the architecture. */
#include <arm_neon.h>

typedef struct { float32x4_t q[4]; } vf;
typedef struct { float64x2_t q[8]; } vd;

#define EACH_QUAD(expression)                                    \
    ({                                                           \
        vf y_;                                                   \
        _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) y_.q[i] = (expression); \
        y_;                                                      \
    })

static inline vf vset(float x) { return EACH_QUAD(vdupq_n_f32(x)); }
static inline vf vload(const float *p) { return EACH_QUAD(vld1q_f32(p + 4 * i)); }
static inline void vstore(float *p, vf x) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, x.q[i]);
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
static inline vf vadd(vf a, vf b) { return EACH_QUAD(vaddq_f32(a.q[i], b.q[i])); }
static inline vf vsub(vf a, vf b) { return EACH_QUAD(vsubq_f32(a.q[i], b.q[i])); }
static inline vf vmul(vf a, vf b) { return EACH_QUAD(vmulq_f32(a.q[i], b.q[i])); }
static inline vf vdiv(vf a, vf b) { return EACH_QUAD(vdivq_f32(a.q[i], b.q[i])); }
static inline vf vfma(vf a, vf b, vf c) { return EACH_QUAD(vfmaq_f32(c.q[i], a.q[i], b.q[i])); }
static inline vf vless(vf a, vf b, vf x, vf y) {
    return EACH_QUAD(vbslq_f32(vcltq_f32(a.q[i], b.q[i]), x.q[i], y.q[i]));
}
/* By comparing: fmax would give NaN where simd.h promises b. */
static inline vf vmax(vf a, vf b) { return vless(b, a, a, b); }
static inline vf vmin(vf a, vf b) { return vless(a, b, a, b); }
static inline vf vpower2(vf n) {
    return EACH_QUAD(vreinterpretq_f32_s32(
        vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n.q[i]), vdupq_n_s32(127)), 23)));
}
static inline float32x4_t half_quad(uint16x4_t x) { return vcvt_f32_f16(vreinterpret_f16_u16(x)); }
static inline vf vload_half(const uint16_t *p) { return EACH_QUAD(half_quad(vld1_u16(p + 4 * i))); }
static inline vf vset_half(uint16_t x) { return EACH_QUAD(half_quad(vdup_n_u16(x))); }
static inline void vstore_half(uint16_t *p, vf x) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.q[i])));
}
static inline vf vload_bf16(const uint16_t *p) {
    return EACH_QUAD(vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)));
}
static inline vf vload_i8(const int8_t *p) {
    int8x16_t x = vld1q_s8(p);
    int16x8_t low = vmovl_s8(vget_low_s8(x)), high = vmovl_high_s8(x);
    return (vf){{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
                 vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                 vcvtq_f32_s32(vmovl_high_s16(high))}};
}
static inline vf vload_nibbles(const uint8_t *p, int high) {
    uint8x16_t x = vld1q_u8(p);
    int8_t t[LANES];
    x = high ? vshrq_n_u8(x, 4) : vandq_u8(x, vdupq_n_u8(15));
    vst1q_s8(t, vsubq_s8(vreinterpretq_s8_u8(x), vdupq_n_s8(8)));
    return vload_i8(t);
}
static inline float vsum(vf x) {
    float32x4_t a = vaddq_f32(vaddq_f32(x.q[0], x.q[2]), vaddq_f32(x.q[1], x.q[3]));
    float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}
static inline float vmax_lane(vf x) {
    float t[4];
    for (int i = 0; i < 2; i++)
        x.q[i] = vbslq_f32(vcgtq_f32(x.q[i], x.q[i + 2]), x.q[i], x.q[i + 2]);
    vst1q_f32(t, vbslq_f32(vcgtq_f32(x.q[0], x.q[1]), x.q[0], x.q[1]));
    for (int half = 2; half; half /= 2)
        for (int i = 0; i < half; i++) t[i] = t[i] > t[i + half] ? t[i] : t[i + half];
    return t[0];
}
static inline vd vd_zero(void) {
    vd x;
    for (int i = 0; i < 8; i++) x.q[i] = vdupq_n_f64(0);
    return x;
}
static inline vd vd_of(vf x) {
    vd y;
    for (int i = 0; i < 4; i++) {
        y.q[2 * i] = vcvt_f64_f32(vget_low_f32(x.q[i]));
        y.q[2 * i + 1] = vcvt_high_f64_f32(x.q[i]);
    }
    return y;
}
static inline vd vd_add(vd x, vd y) {
    for (int i = 0; i < 8; i++) x.q[i] = vaddq_f64(x.q[i], y.q[i]);
    return x;
}
static inline vd vd_mul(vd x, vd y) {
    for (int i = 0; i < 8; i++) x.q[i] = vmulq_f64(x.q[i], y.q[i]);
    return x;
}
static inline void vd_store(double *p, vd x) {
    for (int i = 0; i < 8; i++) vst1q_f64(p + 2 * i, x.q[i]);
}
static inline void vload_pairs(const float *p, vf *even, vf *odd) {
    for (int i = 0; i < 4; i++) {
        float32x4x2_t x = vld2q_f32(p + 8 * i);
        even->q[i] = x.val[0], odd->q[i] = x.val[1];
    }
}
static inline void vstore_pairs(float *p, vf even, vf odd) {
    for (int i = 0; i < 4; i++) {
        float32x4x2_t x = {{even.q[i], odd.q[i]}};
        vst2q_f32(p + 8 * i, x);
    }
}
