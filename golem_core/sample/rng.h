/* The Mersenne twister of std::mt19937 (Matsumoto and Nishimura 1998, 32 bits), and the two ways
 * libstdc++ turns its output into numbers of [0, 1). */
#ifndef GOLEM_SAMPLE_RNG_H
#define GOLEM_SAMPLE_RNG_H

#include <stdint.h>

enum { RNG_WORDS = 624, RNG_SHIFT = 397 };

typedef struct {
    uint32_t state[RNG_WORDS];
    int at;
} Rng;

void rng_seed(Rng *rng, uint32_t seed);
uint32_t rng_next(Rng *rng);
double rng_double(Rng *rng); /* two outputs, the low word first */
float rng_float(Rng *rng);   /* one output */

#endif
