/* A grammar's place in an answer, and its questions about a vocabulary: may this token follow,
 * which tokens may, what then.
 */
#ifndef GOLEM_GRAMMAR_MATCHER_H
#define GOLEM_GRAMMAR_MATCHER_H

#include "stacks.h"
#include "trie.h"

enum { REMEMBERED = 256, MASKS = 8, MOST_FOLDED = 32 };

/* Bytes that a folded trie takes for one and the grammar does not: one of each of its classes. */
typedef struct {
    uint8_t count, bytes[255];
} Folded;

/* What a walk along the trie looks up at every node, of the state before it. */
typedef struct {
    uint64_t groups, loops, wide;
    int32_t row; /* -1 = none yet */
    int32_t span, most, reach;
    int32_t said; /* characters that began before */
} Look;

/* A grammar over a vocabulary, shared by all answers that use it. */
typedef struct {
    Stacks stacks;
    const Trie *trie;
    const Trie *fold; /* of the trie, NULL = none */
    Folded folded[MOST_FOLDED];
    int8_t folded_of[256]; /* a byte's, -1 = the grammar takes them for one too */
    bool strayed; /* the trie itself was walked along too, and `strays` marked */
    struct {
        int32_t state, age; /* state -1: free */
        uint32_t *bits; /* (words) */
    } masks[MASKS]; /* the latest, valid until `collections` moves on */
    int collections;
    int32_t age;
    int words; /* of 32 bits, that hold a bit a token */
    int32_t *path; /* (deepest + 1) states on the way to a node of the trie */
    Look *looks; /* (deepest + 1) of those states */
    uint64_t *marks; /* (ranked / 64 + 1) a bit a rank of the trie that is walked along */
    uint64_t *strays; /* the same of the vocabulary's, when that is another */
    uint32_t *none; /* (words) zeros */
} Bound;

typedef struct {
    Bound *bound;
    Held held;
    int32_t states[REMEMBERED + 2]; /* a ring of states, then those being tried */
    int now; /* place of the current state */
    int past; /* tokens that can be taken back */
    int32_t tried; /* token whose state is in states[REMEMBERED], -1 = none */
} Matcher;

/* fold: of the trie by classes of bytes (256), or NULL twice. False: no memory, or more than
 * MOST_FOLDED classes that the grammar does not take for one. */
bool bound_init(Bound *b, const Tables *tables, const Trie *trie, const Trie *fold,
                const uint8_t *class);
void bound_free(Bound *b);

/* All of these return a negative error of stacks.h too. */
int matcher_init(Matcher *m, Bound *bound);
void matcher_free(Matcher *m);
int matcher_reset(Matcher *m);
void matcher_copy(Matcher *to, const Matcher *from);

/* 1 when the token may follow, else 0. */
int matcher_allows(Matcher *m, int32_t token);

/* Takes the token; 0 when it may not follow, and then nothing changes. Tokens that end a
 * generation change nothing. */
int matcher_accept(Matcher *m, int32_t token);

/* Takes bytes; 0 when they may not follow. */
int matcher_feed(Matcher *m, const uint8_t *bytes, int count);

/* A bit for every token of the vocabulary, in words of 32, that may follow. */
int matcher_mask(Matcher *m, uint32_t *bits);

/* Sets the logits (V) of tokens that may not follow to -inf; returns how many may. Logits beyond
 * the trie's vocabulary are of no token. */
int matcher_narrow(Matcher *m, float *row, int vocab);

bool matcher_may_end(const Matcher *m);
bool matcher_may_go_on(const Matcher *m);
bool matcher_rollback(Matcher *m, int tokens);

#endif
