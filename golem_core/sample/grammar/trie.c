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

static uint32_t group_of(uint8_t byte) {
    static const char *const alike[] = {
        "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " ", "\t", "\n",
        "\r", "\"", "\\", "/", "'", "-", "_", ".", ",", ":", ";", "{", "}", "[", "]", "()", "<",
        ">", "=", "+*", "!?", "@#$%^&|~`"};
    if (byte >= 0x80) return GROUP_BEYOND_ASCII;
    for (int i = 0; i < (int)(sizeof alike / sizeof *alike); i++)
        if (byte && strchr(alike[i], byte)) return 1u << i;
    return 1u << 30; /* other control characters */
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

/* Fills within, chars and groups; state[i] is where node i's text stands in UTF-8. */
static bool describe(Trie *t, const uint8_t *state) {
    int32_t *open = malloc((t->deepest + 1) * sizeof *open); /* nodes of the text so far */
    int32_t *parent = malloc((t->count + 1) * sizeof *parent);
    bool fine = open && parent;
    for (int i = 0; fine && i < t->count; i++) {
        TrieNode *node = &t->nodes[i];
        parent[i] = node->depth > 1 ? open[node->depth - 2] : -1;
        open[node->depth - 1] = i;
        bool starts = parent[i] < 0 || state[parent[i]] == BETWEEN;
        bool broken = state[i] == BROKEN;
        node->within = starts || broken ? 0 : t->nodes[parent[i]].within + 1;
        node->chars = broken ? NOT_PLAIN : 1;
        node->groups = t->groups[node->byte];
    }
    for (int i = t->count - 1; fine && i >= 0; i--) {
        const TrieNode *node = &t->nodes[i];
        if (parent[i] < 0) continue;
        TrieNode *above = &t->nodes[parent[i]];
        int chars = node->chars + !node->within; /* NOT_PLAIN and too many stay above the rest */
        if (node->chars == NOT_PLAIN || chars > MOST_PLAIN) chars = NOT_PLAIN;
        if (chars > above->chars) above->chars = chars;
        above->groups |= node->groups;
    }
    free(open);
    free(parent);
    return fine;
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
    t->nodes = calloc(room + 1, sizeof *t->nodes);
    t->order = malloc((n + 1) * sizeof *t->order);
    t->lengths = calloc(n + 1, 1);
    uint8_t *state = malloc(room + 1);
    int32_t *open = malloc((t->deepest + 1) * sizeof *open); /* nodes of the text so far */
    bool fine = t->nodes && t->order && t->lengths && state && open;
    int depth = 0;
    for (int i = 0; fine && i < n; i++) {
        const Ranked *r = &ranked[i];
        int common = 0;
        while (common < depth && common < (int)r->size &&
               t->nodes[open[common]].byte == r->text[common])
            common++;
        while (depth > common) t->nodes[open[--depth]].skip = t->count;
        for (; depth < (int)r->size; depth++) {
            uint8_t byte = r->text[depth];
            state[t->count] = decode(depth ? state[open[depth - 1]] : BETWEEN, byte);
            t->nodes[t->count] = (TrieNode){.rank = i, .depth = depth + 1, .byte = byte};
            open[depth] = t->count++;
        }
        t->order[i] = r->token;
        for (uint32_t at = 0; at < r->size; at++)
            t->lengths[i] += r->text[at] >> 6 != 2 && t->lengths[i] < NOT_PLAIN;
    }
    while (fine && depth > 0) t->nodes[open[--depth]].skip = t->count;
    if (fine) {
        t->ranked = n;
        t->nodes[t->count] = (TrieNode){.rank = n};
        fine = describe(t, state);
    }
    free(state);
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
    free(t->lengths);
}
