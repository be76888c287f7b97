/* The texts of a vocabulary as a byte trie: tokens that begin alike are asked about once, and a
 * subtree can be skipped or allowed at once. Siblings lie side by side, because a walk skips most
 * of what is below them and would wait for the memory of each otherwise.
 */
#ifndef GOLEM_GRAMMAR_TRIE_H
#define GOLEM_GRAMMAR_TRIE_H

#include <stdbool.h>
#include <stdint.h>

enum { LONGEST_TOKEN = 4095, MOST_PLAIN = 254, NOT_PLAIN = 255 };

typedef struct {
    uint64_t groups; /* of the character this node is in, and of those below */
    uint32_t child; /* the first, 0 = none */
    uint32_t next; /* what follows the subtree */
    uint32_t rank; /* tokens that sort before this node's text */
    uint16_t depth : 12; /* bytes of the node's text */
    uint16_t within : 4; /* bytes of its last character before the last one */
    uint8_t byte; /* the last of them */
    uint8_t chars; /* most characters from the one this node is in down, or NOT_PLAIN: not all is
                      UTF-8, or there are too many */
} TrieNode;

typedef struct {
    int vocab; /* V */
    uint8_t *text; /* all texts in a row */
    uint32_t *start; /* (V + 1) */
    uint8_t *ends; /* (V) the token ends a generation */
    uint8_t *steers; /* (V) the token has no text but may be named */
    TrieNode *nodes; /* (count + 1) the last holds only a rank */
    int count;
    int32_t *order; /* tokens with a text, by it: a rank is a place here */
    uint32_t *spelled; /* (V / 32, rounded up) a bit for each token in `order` */
    uint8_t *lengths; /* of each rank: characters, NOT_PLAIN for too many */
    uint64_t groups[256]; /* the group of a byte */
    int ranked;
    int deepest;
    uint32_t *members_at; /* of a folded trie (count + 1): where each node's members begin, */
    uint32_t *members;    /* nodes of the trie it was made of */
} Trie;

/* Characters that grammars tend to treat alike are one group, and what is not ASCII another. Small
 * letters have one each: most texts have some of them, so what is said of all of them says
 * little. */
#define GROUPS_ALL UINT64_MAX
#define GROUPS_LETTERS ((1ull << 26) - 1)
#define GROUP_BEYOND_ASCII (1ull << 63)

/* text and start are taken over; tokens that start with NUL or are too long take no part. */
bool trie_build(Trie *t, int vocab, uint8_t *text, uint32_t *start);

/* The same tokens with bytes of one class (256) taken for one, which must stand at the same places
 * of UTF-8: a node is all nodes whose texts read alike then, and its byte one of theirs. It has no
 * texts and no words of its own. */
bool trie_fold(Trie *folded, const Trie *t, const uint8_t *class);
void trie_free(Trie *t);

#endif
