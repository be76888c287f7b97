/* Rows of activations as records, by largest_magnitude and code_half, which the set defines. Prompt
 * columns get their whole scales, so that the drawn columns' kernels read them too; but where the
 * set has kernels of its own for them (PROMPTS_OF_CODES) it has a quantise_block and a
 * quantise_precise_block too. */
#ifndef GOLEM_LINEAR_QUANTISE_H
#define GOLEM_LINEAR_QUANTISE_H

#ifdef TARGET
#define OF_SET __attribute__((target(TARGET))) static
#else
#define OF_SET static
#endif

INLINE void set_half(golem_q8 *q, int h, const float *x, float inverse, float d) {
    q->d[h] = d;
    q->minus[h] = code_half(x + 16 * h, inverse, q->q + 16 * h);
}

INLINE void set_sum(golem_q8 *q) {
    q->s = -(q->d[0] * (float)q->minus[0] + q->d[1] * (float)q->minus[1]);
    q->base = 0;
}

OF_SET void quantise_row(const float *x, int in, golem_q8 *q, int n) {
    for (int b = 0; b < in / 32; b++, x += 32, q += n) {
        for (int h = 0; h < 2; h++) {
            float inverse, d;
            scale_of(largest_magnitude(x + 16 * h), &inverse, &d);
            set_half(q, h, x, inverse, d);
        }
        set_sum(q);
    }
}

#ifndef PROMPTS_OF_CODES
/* At most GOLEM_PROMPT_BLOCK values. */
INLINE void quantise_block(const float *x, int in, golem_q8 *q, int n) {
    uint32_t largest[GOLEM_PROMPT_BLOCK / 16], most = 0;
    float inverse, base;
    for (int i = 0; i < in / 16; i++) {
        largest[i] = largest_magnitude(x + 16 * i);
        most = largest[i] > most ? largest[i] : most;
    }
    scale_of(most, &inverse, &base);
    for (int i = 0; i < in / 16; i++) {
        golem_q8 *to = q + (ptrdiff_t)(i / 2) * n;
        int k = prompt_exponent(largest[i], inverse);
        set_half(to, i % 2, x + 32 * (i / 2), inverse * power_of_2(-k), base * power_of_2(k));
        if (i % 2) set_sum(to);
    }
}
#endif

#define QUANTISE_BLOCKS(NAME, BLOCK)                                                              \
    OF_SET void NAME(const float *x, int in, golem_q8 *q, int n) {                                \
        for (; in > 0; in -= GOLEM_PROMPT_BLOCK, x += GOLEM_PROMPT_BLOCK) {                       \
            BLOCK(x, in < GOLEM_PROMPT_BLOCK ? in : GOLEM_PROMPT_BLOCK, q, n);                    \
            q += (ptrdiff_t)(GOLEM_PROMPT_BLOCK / GOLEM_ACT_BLOCK) * n;                           \
        }                                                                                         \
    }
QUANTISE_BLOCKS(quantise_prompt, quantise_block)
#ifdef PROMPTS_OF_CODES
QUANTISE_BLOCKS(quantise_precise, quantise_precise_block)
#endif

#endif
