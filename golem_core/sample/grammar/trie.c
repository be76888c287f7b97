/* Building the trie. */

#include "trie.h"

#include <stdlib.h>
#include <string.h>

/* Where a text stands in UTF-8: between characters, or with what still has to come. */
enum { BETWEEN, NEED_1, NEED_2, NEED_3, AFTER_E0, AFTER_ED, AFTER_F0, AFTER_F4, BROKEN };

static int decode(int at, uint8_t b) {
    switch (at) {
        case BETWEEN:
            if (b < 0x80) return BETWEEN;
            if (b < 0xc2 || b > 0xf4) return BROKEN;
            if (b < 0xe0) return NEED_1;
            if (b < 0xf0) return b == 0xe0 ? AFTER_E0 : b == 0xed ? AFTER_ED : NEED_2;
            return b == 0xf0 ? AFTER_F0 : b == 0xf4 ? AFTER_F4 : NEED_3;
        case NEED_1: return b >> 6 == 2 ? BETWEEN : BROKEN;
        case NEED_2: return b >> 6 == 2 ? NEED_1 : BROKEN;
        case NEED_3: return b >> 6 == 2 ? NEED_2 : BROKEN;
        case AFTER_E0: return b >= 0xa0 && b < 0xc0 ? NEED_1 : BROKEN;
        case AFTER_ED: return b >= 0x80 && b < 0xa0 ? NEED_1 : BROKEN;
        case AFTER_F0: return b >= 0x90 && b < 0xc0 ? NEED_2 : BROKEN;
        case AFTER_F4: return b >= 0x80 && b < 0x90 ? NEED_2 : BROKEN;
        default: return BROKEN;
    }
}

static uint64_t group_of(uint8_t byte) {
    static const char *const alike[] = {
        "ABC", "DEF", "GHI", "JKL", "MNO", "PQRS", "TUV", "WXYZ", "0123456789", " ", "\t", "\n",
        "\r", "\"", "\\", "/", "'", "-", "_", ".", ",", ":", ";", "{", "}", "[", "]", "()", "<",
        ">", "=", "+*", "!?", "@#$%^&|~`"};
    if (byte >= 0x80) return GROUP_BEYOND_ASCII;
    if (byte >= 'a' && byte <= 'z') return 1ull << (byte - 'a');
    for (int i = 0; i < (int)(sizeof alike / sizeof *alike); i++)
        if (byte && strchr(alike[i], byte)) return 1ull << (26 + i);
    return 1ull << 62; /* other control characters */
}

typedef struct {
    const uint8_t *text;
    uint32_t size;
    int32_t token;
} Ranked;

static int compare(const void *x, const void *y) {
    const Ranked *a = x, *b = y;
    int order = memcmp(a->text, b->text, a->size < b->size ? a->size : b->size);
    if (order) return order;
    if (a->size != b->size) return a->size < b->size ? -1 : 1;
    return (a->token > b->token) - (a->token < b->token);
}

/* A node as texts in their order make it: below it are the nodes up to `skip`. */
typedef struct {
    TrieNode node;
    uint32_t skip;
    int32_t parent; /* -1 = none */
    uint8_t state; /* where its text stands in UTF-8 */
} Found;

/* Fills within, chars and groups. */
static void describe(const Trie *t, Found *found) {
    for (int i = 0; i < t->count; i++) {
        TrieNode *node = &found[i].node;
        const Found *above = found[i].parent < 0 ? NULL : &found[found[i].parent];
        bool starts = !above || above->state == BETWEEN, broken = found[i].state == BROKEN;
        node->within = starts || broken ? 0 : above->node.within + 1;
        node->chars = broken ? NOT_PLAIN : 1;
        node->groups = t->groups[node->byte];
    }
    for (int i = t->count - 1; i >= 0; i--) {
        const TrieNode *node = &found[i].node;
        if (found[i].parent < 0) continue;
        TrieNode *above = &found[found[i].parent].node;
        int chars = node->chars + !node->within; /* NOT_PLAIN and too many stay above the rest */
        if (node->chars == NOT_PLAIN || chars > MOST_PLAIN) chars = NOT_PLAIN;
        if (chars > above->chars) above->chars = chars;
        above->groups |= node->groups;
    }
}

/* Puts siblings side by side: the children of each found node, in the order of those. */
static bool place(Trie *t, const Found *found) {
    uint32_t *at = malloc((t->count + 1) * sizeof *at);
    t->nodes = malloc((t->count + 1) * sizeof *t->nodes);
    uint32_t placed = 0;
    for (int p = -1; at && t->nodes && p < t->count; p++) {
        uint32_t until = p < 0 ? (uint32_t)t->count : found[p].skip;
        uint32_t next = p < 0 ? until : t->nodes[at[p]].next;
        if (p >= 0) t->nodes[at[p]].child = until > (uint32_t)p + 1 ? placed : 0;
        for (uint32_t i = p + 1; i < until; i = found[i].skip) {
            at[i] = placed;
            TrieNode *node = &t->nodes[placed++];
            *node = found[i].node;
            node->next = found[i].skip == until ? next : placed;
        }
    }
    if (at && t->nodes) t->nodes[t->count] = found[t->count].node;
    free(at);
    return at && t->nodes;
}

static bool lay_out(Trie *t, const Ranked *ranked, int n) {
    int room = 0;
    for (int i = 0; i < n; i++) { /* nodes: bytes that differ from the text before */
        uint32_t common = 0;
        if (i)
            while (common < ranked[i - 1].size && common < ranked[i].size &&
                   ranked[i - 1].text[common] == ranked[i].text[common])
                common++;
        room += ranked[i].size - common;
        if ((int)ranked[i].size > t->deepest) t->deepest = ranked[i].size;
    }
    t->order = malloc((n + 1) * sizeof *t->order);
    t->lengths = calloc(n + 1, 1);
    t->spelled = calloc((t->vocab + 31) / 32, sizeof *t->spelled);
    Found *found = malloc((room + 1) * sizeof *found);
    int32_t *open = malloc((t->deepest + 1) * sizeof *open); /* nodes of the text so far */
    bool fine = t->order && t->lengths && t->spelled && found && open;
    int depth = 0;
    for (int i = 0; fine && i < n; i++) {
        const Ranked *r = &ranked[i];
        int common = 0;
        while (common < depth && common < (int)r->size &&
               found[open[common]].node.byte == r->text[common])
            common++;
        while (depth > common) found[open[--depth]].skip = t->count;
        for (; depth < (int)r->size; depth++) {
            int32_t parent = depth ? open[depth - 1] : -1;
            uint8_t byte = r->text[depth];
            found[t->count] = (Found){
                .node = {.rank = i, .depth = depth + 1, .byte = byte},
                .parent = parent,
                .state = decode(parent < 0 ? BETWEEN : found[parent].state, byte),
            };
            open[depth] = t->count++;
        }
        t->order[i] = r->token;
        t->spelled[r->token >> 5] |= 1u << (r->token & 31);
        for (uint32_t at = 0; at < r->size; at++)
            t->lengths[i] += r->text[at] >> 6 != 2 && t->lengths[i] < NOT_PLAIN;
    }
    while (fine && depth > 0) found[open[--depth]].skip = t->count;
    if (fine) {
        t->ranked = n;
        found[t->count] = (Found){.node = {.rank = n}};
        describe(t, found);
        fine = place(t, found);
    }
    free(found);
    free(open);
    return fine;
}

bool trie_build(Trie *t, int vocab, uint8_t *text, uint32_t *start) {
    *t = (Trie){.vocab = vocab, .text = text, .start = start};
    for (int b = 0; b < 256; b++) t->groups[b] = group_of(b);
    t->ends = calloc(vocab, 1);
    t->steers = calloc(vocab, 1);
    Ranked *ranked = malloc((vocab + 1) * sizeof *ranked);
    bool fine = t->ends && t->steers && ranked;
    int n = 0;
    for (int i = 0; fine && i < vocab; i++) {
        uint32_t size = start[i + 1] - start[i];
        if (size && size <= LONGEST_TOKEN && text[start[i]])
            ranked[n++] = (Ranked){text + start[i], size, i};
    }
    if (fine) {
        qsort(ranked, n, sizeof *ranked, compare);
        fine = lay_out(t, ranked, n);
    }
    free(ranked);
    return fine;
}

void trie_free(Trie *t) {
    free(t->text);
    free(t->start);
    free(t->ends);
    free(t->steers);
    free(t->nodes);
    free(t->order);
    free(t->spelled);
    free(t->lengths);
}
