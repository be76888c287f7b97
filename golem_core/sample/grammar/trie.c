/* Building the trie. */

#include "trie.h"

#include "map.h"

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

/* Puts siblings side by side: the children of each found node, in the order of those. at: (count +
 * 1) is filled with where each is put. */
static bool place(Trie *t, const Found *found, uint32_t *at) {
    t->nodes = malloc((t->count + 1) * sizeof *t->nodes);
    uint32_t placed = 0;
    for (int p = -1; t->nodes && p < t->count; p++) {
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
    if (t->nodes) t->nodes[t->count] = found[t->count].node;
    return t->nodes;
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
        uint32_t *at = malloc((t->count + 1) * sizeof *at);
        fine = at && place(t, found, at);
        free(at);
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

/* ---- folding ---- */

/* Texts that read alike. */
typedef struct {
    int32_t parent, child, last, sibling; /* -1 = none */
    uint32_t tokens;
    Found found;
} Alike;

/* What follows the siblings of which a node is the first. */
static uint32_t after_all(const Trie *t, int64_t parent) {
    return parent < 0 ? (uint32_t)t->count : t->nodes[parent].next;
}

static uint32_t tokens_at(const Trie *t, uint32_t i) {
    const TrieNode *node = &t->nodes[i];
    return t->nodes[node->child ? node->child : node->next].rank - node->rank;
}

/* Finds out which texts read alike: of[i] is the number of the i-th node's. Their count, or -1. */
static int find_alike(const Trie *t, const uint8_t *class, Alike *alike, int32_t *of, Map *known) {
    int count = 0, top = -1; /* the last of the first siblings */
    for (int64_t p = -1; p < t->count; p++) { /* parents come before their children */
        if (p >= 0 && !t->nodes[p].child) continue;
        for (uint32_t i = p < 0 ? 0 : t->nodes[p].child;; i++) {
            const TrieNode *node = &t->nodes[i];
            int32_t above = p < 0 ? -1 : of[p];
            uint64_t key = pair(above + 1, class[node->byte]);
            int32_t at = map_get(known, key);
            if (at < 0) {
                at = count++;
                if (!map_put(known, key, at)) return -1;
                alike[at] = (Alike){above, -1, -1, -1, 0, {.node = *node}};
                int32_t *last = above < 0 ? &top : &alike[above].last;
                if (*last >= 0) alike[*last].sibling = at;
                if (*last < 0 && above >= 0) alike[above].child = at;
                *last = at;
            }
            TrieNode *shared = &alike[at].found.node;
            shared->groups |= node->groups;
            if (node->chars > shared->chars) shared->chars = node->chars;
            alike[at].tokens += tokens_at(t, i);
            of[i] = at;
            if (node->next == after_all(t, p)) break;
        }
    }
    return count;
}

/* Puts them in the order of a walk, with ranks; number[] of each is its place there. */
static void order_alike(Alike *alike, int count, Found *found, int32_t *number) {
    uint32_t rank = 0;
    int placed = 0;
    for (int32_t i = count ? 0 : -1; i >= 0;) {
        number[i] = placed;
        alike[i].found.node.rank = rank;
        rank += alike[i].tokens;
        found[placed++] = alike[i].found;
        if (alike[i].child >= 0) {
            i = alike[i].child;
            continue;
        }
        for (; i >= 0; i = alike[i].parent) {
            found[number[i]].skip = placed;
            if (alike[i].sibling >= 0) break;
        }
        if (i >= 0) i = alike[i].sibling;
    }
    found[count] = (Found){.node = {.rank = rank}};
}

/* Fills members, order and lengths. of: the place of each node of t. */
static void enter_members(Trie *folded, const Trie *t, const int32_t *of, uint32_t *used) {
    uint32_t *end = folded->members_at;
    for (int i = 0; i < t->count; i++) end[of[i] + 1]++;
    for (int i = 0; i < folded->count; i++) end[i + 1] += end[i];
    memset(used, 0, folded->count * sizeof *used);
    for (int i = 0; i < t->count; i++) folded->members[end[of[i]] + used[of[i]]++] = i;
    memset(used, 0, folded->count * sizeof *used);
    for (int i = 0; i < t->count; i++) {
        uint32_t tokens = tokens_at(t, i), from = t->nodes[i].rank;
        for (uint32_t k = 0; k < tokens; k++) {
            uint32_t rank = folded->nodes[of[i]].rank + used[of[i]]++;
            folded->order[rank] = t->order[from + k];
            folded->lengths[rank] = t->lengths[from + k];
        }
    }
}

bool trie_fold(Trie *folded, const Trie *t, const uint8_t *class) {
    *folded = (Trie){.vocab = t->vocab, .ranked = t->ranked, .deepest = t->deepest};
    size_t room = t->count + 1;
    Alike *alike = malloc(room * sizeof *alike);
    int32_t *of = malloc(room * sizeof *of), *number = malloc(room * sizeof *number);
    Map known = {0};
    bool fine = map_init(&known, 1 << 12) && alike && of && number;
    int count = fine && t->count ? find_alike(t, class, alike, of, &known) : -!fine;
    Found *found = malloc((count + 2) * sizeof *found);
    uint32_t *at = malloc((count + 2) * sizeof *at);
    folded->members_at = calloc(count + 2, sizeof *folded->members_at);
    folded->members = malloc(room * sizeof *folded->members);
    folded->order = malloc((t->ranked + 1) * sizeof *folded->order);
    folded->lengths = malloc(t->ranked + 1);
    fine = count >= 0 && found && at && folded->members_at && folded->members && folded->order &&
           folded->lengths;
    if (fine) {
        folded->count = count;
        order_alike(alike, count, found, number);
        fine = place(folded, found, at);
    }
    if (fine) {
        for (int i = 0; i < t->count; i++) of[i] = at[number[of[i]]];
        enter_members(folded, t, of, at);
    }
    map_free(&known);
    free(alike);
    free(of);
    free(number);
    free(found);
    free(at);
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
    free(t->members_at);
    free(t->members);
}
