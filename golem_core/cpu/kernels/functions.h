/* Elementary functions of sixteen lanes. Multiplies and adds are separate, so that every
 * instruction set gives the same bits; errors are of one or two units in the last place. */
#ifndef GOLEM_FUNCTIONS_H
#define GOLEM_FUNCTIONS_H

#include <math.h>

#include "../record.h"
#include "simd.h"

static inline vf vmadd(vf a, vf b, vf c) { return vadd(vmul(a, b), c); }

static inline vf vround(vf x) {   /* of |x| < 2^22, ties to even */
    const vf big = vset(12582912.0f);
    return vsub(vadd(x, big), big);
}

/* x = n ln 2 + r; gives n and e^r - 1 */
static inline vf exp_parts(vf x, vf *n) {
    *n = vround(vmul(x, vset(1.44269504f)));
    vf r = vsub(x, vmul(*n, vset(0.693359375f)));
    r = vadd(r, vmul(*n, vset(2.12194440e-4f)));
    vf p = vset(1.9875691500e-4f);
    p = vmadd(p, r, vset(1.3981999507e-3f));
    p = vmadd(p, r, vset(8.3334519073e-3f));
    p = vmadd(p, r, vset(4.1665795894e-2f));
    p = vmadd(p, r, vset(1.6666665459e-1f));
    p = vmadd(p, r, vset(5.0000001201e-1f));
    return vmadd(vmul(p, r), r, r);
}

/* y · 2^n of whole numbers n, rounded once */
static inline vf vscaled(vf y, vf n) {
#if defined(GOLEM_AVX512)
    return _mm512_scalef_ps(y, n);
#else
    vf half = vround(vmul(n, vset(0.5f)));   /* in two steps, so that subnormals come out */
    return vmul(vmul(y, vpower2(half)), vpower2(vsub(n, half)));
#endif
}

static inline vf vexp(vf x) {
    vf n;
    x = vmax(vset(-150.0f), vmin(vset(130.0f), x));
    vf y = vadd(exp_parts(x, &n), vset(1.0f));
    return vscaled(y, n);
}

/* e^x of x <= 0, 0 below -87: for softmax */
static inline vf vexp_negative(vf x) {
    vf n;
    vf y = vadd(exp_parts(vmax(vset(-87.0f), x), &n), vset(1.0f));
    return vless(x, vset(-87.0f), vzero(), vmul(y, vpower2(n)));
}

static inline vf vexpm1(vf x) {   /* of x <= 0 */
    vf n;
    vf e = exp_parts(vmax(vset(-80.0f), x), &n), p = vpower2(n);
    return vadd(vmul(e, p), vsub(p, vset(1.0f)));
}

static inline vf vabs(vf x) { return vmax(x, vsub(vzero(), x)); }

static inline vf vsigmoid(vf x) {
    return vdiv(vset(1.0f), vadd(vset(1.0f), vexp(vsub(vzero(), x))));
}

static inline vf vsilu(vf x) { return vdiv(x, vadd(vset(1.0f), vexp(vsub(vzero(), x)))); }

static inline vf vtanh(vf x) {
    vf a = vabs(x), z = vmul(x, x);
    vf p = vset(-5.70498872745e-3f);
    p = vmadd(p, z, vset(2.06390887954e-2f));
    p = vmadd(p, z, vset(-5.37397155531e-2f));
    p = vmadd(p, z, vset(1.33314422036e-1f));
    p = vmadd(p, z, vset(-3.33332819422e-1f));
    vf small = vmadd(vmul(p, z), x, x);
    vf e = vexp(vmul(vset(2.0f), a));
    vf large = vsub(vset(1.0f), vdiv(vset(2.0f), vadd(e, vset(1.0f))));
    large = vless(x, vzero(), vsub(vzero(), large), large);
    return vless(a, vset(0.625f), small, large);
}

/* one lane at a time by the C library: for functions that no model spends its time in */
static inline vf vper_lane(float (*f)(float), vf x) {
    float t[LANES];
    vstore(t, x);
    for (int i = 0; i < LANES; i++) t[i] = f(t[i]);
    return vload(t);
}

static inline vf vsoftplus(vf x) {
    vf y = vper_lane(log1pf, vexp(vmin(vset(20.0f), x)));
    return vless(vset(20.0f), x, x, y);
}

/* 1 - erf(z) of z >= 0: t e^(P(t) - z²) with t = 2 / (2 + z); P is a least-maximum fit of degree 8
 * to ln(erfc(z) / t) + z² over 0 <= z <= 5, off by 2.5e-8. */
static inline vf verfc(vf z) {
    static const float fit[] = {-1.2643981f, 0.980526924f, 0.521691978f, -0.537367761f, 1.51788938f,
                                -2.6935339f, 2.23302817f, -0.905583739f, 0.147747055f};
    vf t = vdiv(vset(2.0f), vadd(vset(2.0f), z)), p = vset(fit[8]);
    for (int i = 7; i >= 0; i--) p = vmadd(p, t, vset(fit[i]));
    return vmul(t, vexp(vsub(p, vmul(z, z))));
}

static inline vf vunary(int kind, vf x) {
    switch (kind) {
    case GOLEM_SILU: return vsilu(x);
    case GOLEM_SIGMOID: return vsigmoid(x);
    case GOLEM_TANH: return vtanh(x);
    case GOLEM_RELU: return vmax(vzero(), x);
    case GOLEM_ELU: return vless(vzero(), x, x, vexpm1(vmin(vzero(), x)));
    case GOLEM_EXP: return vexp(x);
    case GOLEM_SOFTPLUS: return vsoftplus(x);
    case GOLEM_GELU_TANH: {   /* x / 2 (1 + tanh u) = x / (1 + e^-2u) */
        vf u = vmul(vset(-1.5957691216057308f),
                    vmul(x, vmadd(vset(0.044715f), vmul(x, x), vset(1.0f))));
        return vdiv(x, vadd(vset(1.0f), vexp(u)));
    }
    case GOLEM_GELU_ERF: {
        vf e = verfc(vmul(vabs(x), vset(0.70710678f)));
        return vmul(vmul(vset(0.5f), x), vless(x, vzero(), e, vsub(vset(2.0f), e)));
    }
    default: return vdiv(x, vadd(vset(1.0f), vexp(vmul(vset(-1.702f), x))));
    }
}

#endif
