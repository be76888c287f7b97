#include "rng.h"

#include <math.h>

void rng_seed(Rng *rng, uint32_t seed) {
    rng->state[0] = seed;
    for (uint32_t i = 1; i < RNG_WORDS; i++) {
        uint32_t last = rng->state[i - 1];
        rng->state[i] = 1812433253u * (last ^ (last >> 30)) + i;
    }
    rng->at = RNG_WORDS;
}

static void refill(Rng *rng) {
    uint32_t *s = rng->state;
    for (int i = 0; i < RNG_WORDS; i++) {
        uint32_t word = (s[i] & 0x80000000u) | (s[(i + 1) % RNG_WORDS] & 0x7fffffffu);
        s[i] = s[(i + RNG_SHIFT) % RNG_WORDS] ^ (word >> 1) ^ (word & 1 ? 0x9908b0dfu : 0);
    }
    rng->at = 0;
}

uint32_t rng_next(Rng *rng) {
    if (rng->at == RNG_WORDS) refill(rng);
    uint32_t x = rng->state[rng->at++];
    x ^= x >> 11;
    x ^= (x << 7) & 0x9d2c5680u;
    x ^= (x << 15) & 0xefc60000u;
    return x ^ (x >> 18);
}

double rng_double(Rng *rng) {
    double low = rng_next(rng);
    double high = rng_next(rng);
    double u = (low + high * 0x1p32) * 0x1p-64;
    return u < 1.0 ? u : nextafter(1.0, 0.0);
}

float rng_float(Rng *rng) {
    float u = (float)rng_next(rng) * 0x1p-32f;
    return u < 1.0f ? u : nextafterf(1.0f, 0.0f);
}
