/* What the sampler asks of a grammar. The functions return a negative number when the grammar
 * itself gave up: out of memory, or past the work one answer may make; which of them is for whoever
 * made it to tell.
 */
#ifndef GOLEM_SAMPLE_CONSTRAINT_H
#define GOLEM_SAMPLE_CONSTRAINT_H

#include <stdint.h>

#define CONSTRAINT_CAPSULE "golem.constraint"

typedef struct {
    void *self;
    /* 1 when the token may follow, else 0. */
    int (*allows)(void *self, int32_t token);
    /* Sets the logits (vocab) of tokens that may not follow to -inf; returns how many may. */
    int (*narrow)(void *self, float *logits, int vocab);
    /* Takes a token that may follow. */
    int (*accept)(void *self, int32_t token);
} Constraint;

#endif
