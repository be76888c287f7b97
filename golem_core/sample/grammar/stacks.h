/* What a grammar can still say after the bytes said so far: a set of stacks, each set kept once.
 *
 * A stack holds places of the grammar: on top a terminal that is being read, below it where to go
 * on after each rule that was entered. A set of stacks is a node: its entries are the different
 * tops, each with the node of what may lie below. Equal sets are one node (hash-consing), so a set
 * has a number, an ambiguous grammar shares what its readings have in common, and what a byte does
 * to a set is remembered: after a few tokens a grammar runs like a finite automaton.
 *
 * A node only refers to nodes with lower numbers. Node DEAD has no stacks at all, node DONE is the
 * empty stack alone.
 */
#ifndef GOLEM_GRAMMAR_STACKS_H
#define GOLEM_GRAMMAR_STACKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "map.h"

/* Elements of a grammar. Their values: CHAR the state of the byte automaton that reads the class,
 * RULE a rule, TOKEN and NOT_TOKEN a token. */
enum { ELEMENT_END, ELEMENT_CHAR, ELEMENT_RULE, ELEMENT_TOKEN, ELEMENT_NOT_TOKEN };

/* States of the byte automaton: these two, then those that wait for the rest of a character. */
enum { CLASS_DEAD, CLASS_DONE };
enum { BEYOND_NONE, BEYOND_ALL, BEYOND_SOME };

/* Where an alternative stands is a position: its elements follow, the last is END. Rule r has the
 * alternatives that start at alternatives[rules[r]] … alternatives[rules[r + 1] - 1]. */
typedef struct {
    const uint8_t *kinds;
    const int32_t *values;
    const int32_t *rules;
    const int32_t *alternatives;
    const uint16_t *steps; /* (states, byte_classes) of the byte automaton */
    const uint8_t *beyond; /* (states) of the characters beyond ASCII: reads BEYOND_… */
    const uint8_t *byte_class; /* (256) bytes that no class tells apart share one */
    int byte_classes;
    int root; /* rule */
} Tables;

enum { DEAD, DONE };
/* Errors: rules that lead too far before a byte is read, more work than a question may make, more
 * to remember than an answer may have. */
enum { STACKS_NO_MEMORY = -2, STACKS_TOO_DEEP = -3, STACKS_TOO_LONG = -4, STACKS_TOO_MUCH = -5 };

/* Most that is kept before what nobody can reach any more is thrown away, and most work that one
 * question may make, about a second's worth: everybody waits for it. */
enum { NODES_KEPT = 1 << 17, ENTRIES_KEPT = 1 << 20, ROWS_BYTES = 16 << 20, WORK = 64 << 20 };
enum { MOST_OPEN = NODES_KEPT / 2, MOST_READINGS = ENTRIES_KEPT / 2 }; /* that answers hold on to */
enum { DEEPEST = 10000 }; /* C frames of one question */

typedef struct {
    int32_t position; /* of a terminal in a state, of where to go on below */
    int32_t progress; /* CHAR on top: state of the byte automaton; else 0 */
    int32_t below; /* node */
} Entry;

typedef struct {
    int32_t first, count; /* entries, ascending by (position, progress), which are distinct */
    int32_t popped; /* state after the stacks' tops are gone on with, -1 = not asked yet */
    int32_t row; /* of `next`, -1 = none */
    uint32_t hash;
    bool done; /* the empty stack is in the set */
    bool tokens; /* token elements are among the tops */
} Node;

/* A state's way through plain text: each character of `groups` leads to `next`, none of `dead`
 * leads anywhere. At least `span` characters of the groups may follow in a row, and `most` at most.
 * Whatever states they lead to, any number of characters of `loops` may, as far as is known, and at
 * least `reach` of `wide`. */
typedef struct {
    uint64_t groups, dead, loops, wide;
    int32_t next; /* -1 = not asked yet */
    int32_t span, most; /* as far as is known */
    int32_t reach;
    uint32_t asked, mixed; /* folded bytes, a bit each: known, and lead to different states */
} Plain;

/* ASCII bytes that no class of the grammar tells apart: one of them, and the groups of all. */
typedef struct {
    uint64_t groups;
    uint8_t byte;
} Alike;

/* States that somebody holds on to. */
typedef struct Held {
    struct Held *next, *previous;
    int32_t *states;
    int count;
} Held;

typedef struct {
    Tables t;
    Node *nodes;
    int node_count, node_room;
    Entry *entries;
    int entry_count, entry_room;
    Entry *scratch; /* sets being put together, one above the other */
    int scratch_count, scratch_room;
    int32_t *found; /* hash table of nodes, -1 = free */
    uint32_t found_room;
    Map entered, joined; /* (position, below) -> state; (node, node) -> node */
    int32_t *next; /* (rows, byte_classes) state after a byte, -1 = not asked yet */
    Plain *plain; /* (rows) */
    Alike ascii[128];
    int ascii_count;
    int row_count, row_room;
    int depth;
    int64_t work;
    Held held; /* head of a ring */
    const Held *asking; /* whose question it is */
    int collections;
    pthread_mutex_t lock;
} Stacks;

bool stacks_init(Stacks *s, const Tables *tables);
void stacks_free(Stacks *s);

/* The state before anything was said, or an error. */
int32_t stacks_start(Stacks *s);

/* The state after a byte, DEAD when no stack goes on with it, or an error. */
int32_t stacks_byte(Stacks *s, int32_t state, uint8_t byte);

/* The state after a token element that this token satisfies; DEAD when there is none. */
int32_t stacks_token(Stacks *s, int32_t state, int32_t token);

/* The union of two sets. */
int32_t stacks_join(Stacks *s, int32_t a, int32_t b);

void stacks_hold(Stacks *s, Held *held);
void stacks_let_go(Held *held);

/* Throws away what is not reachable from held states when much has piled up; held states get new
 * numbers. STACKS_TOO_MUCH when most of it is reachable and who asks holds no less than its share:
 * others who are held to the same grammar go on. */
int stacks_tidy(Stacks *s, Held *also);

bool stacks_full(const Stacks *s);

#endif
