/* Sets of stacks: how they are made, joined, moved on and forgotten. */

#include "stacks.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static bool grow(void **memory, int *room, int wanted, size_t size) {
    if (wanted <= *room) return true;
    int to = *room ? *room : 64;
    while (to < wanted) to *= 2;
    void *grown = realloc(*memory, to * size);
    if (!grown) return false;
    *memory = grown;
    *room = to;
    return true;
}

/* ---- nodes ---- */

static int push_entry(Stacks *s, Entry entry) {
    if (!grow((void **)&s->scratch, &s->scratch_room, s->scratch_count + 1, sizeof entry))
        return STACKS_NO_MEMORY;
    s->scratch[s->scratch_count++] = entry;
    return ++s->work > WORK ? STACKS_TOO_LONG : 0;
}

static int compare_entries(const void *x, const void *y) {
    const Entry *a = x, *b = y;
    if (a->position != b->position) return a->position < b->position ? -1 : 1;
    if (a->progress != b->progress) return a->progress < b->progress ? -1 : 1;
    return (a->below > b->below) - (a->below < b->below);
}

static void sort_entries(Entry *entries, int n) {
    if (n > 24) {
        qsort(entries, n, sizeof *entries, compare_entries);
        return;
    }
    for (int i = 1; i < n; i++) {
        Entry moved = entries[i];
        int j = i;
        for (; j > 0 && compare_entries(&moved, &entries[j - 1]) < 0; j--)
            entries[j] = entries[j - 1];
        entries[j] = moved;
    }
}

static uint32_t hash_of(const Entry *entries, int count, bool done) {
    uint64_t h = done;
    for (int i = 0; i < count; i++) {
        h = mix(h ^ pair(entries[i].position, entries[i].progress));
        h = mix(h ^ (uint32_t)entries[i].below);
    }
    return (uint32_t)(h >> 16);
}

static uint32_t found_place(const Stacks *s, const Entry *entries, int count, bool done,
                            uint32_t hash) {
    uint32_t i = hash & (s->found_room - 1);
    for (; s->found[i] >= 0; i = (i + 1) & (s->found_room - 1)) {
        const Node *node = &s->nodes[s->found[i]];
        if (node->hash == hash && node->count == count && node->done == done &&
            !memcmp(&s->entries[node->first], entries, count * sizeof *entries))
            break;
    }
    return i;
}

static bool rehash(Stacks *s, uint32_t room) {
    int32_t *found = malloc(room * sizeof *found);
    if (!found) return false;
    free(s->found);
    s->found = found;
    s->found_room = room;
    memset(found, -1, room * sizeof *found);
    for (int n = 0; n < s->node_count; n++) {
        uint32_t i = s->nodes[n].hash & (room - 1);
        while (found[i] >= 0) i = (i + 1) & (room - 1);
        found[i] = n;
    }
    return true;
}

/* The node of the scratch entries from `base` on, which are taken off. Their order does not matter;
 * tops that came twice must have been joined. */
static int32_t intern(Stacks *s, int base, bool done) {
    Entry *entries = s->scratch + base;
    int count = s->scratch_count - base;
    s->scratch_count = base;
    uint32_t hash = hash_of(entries, count, done);
    uint32_t place = found_place(s, entries, count, done, hash);
    if (s->found[place] >= 0) return s->found[place];
    /* Twice what is kept: one question made all that. */
    if (s->node_count >= 2 * NODES_KEPT || s->entry_count >= 2 * ENTRIES_KEPT)
        return STACKS_TOO_MUCH;
    if (!grow((void **)&s->nodes, &s->node_room, s->node_count + 1, sizeof *s->nodes) ||
        !grow((void **)&s->entries, &s->entry_room, s->entry_count + count, sizeof *entries))
        return STACKS_NO_MEMORY;
    int32_t number = s->node_count++;
    Node *node = &s->nodes[number];
    *node = (Node){.first = s->entry_count, .count = count, .popped = -1, .row = -1,
                   .hash = hash, .done = done};
    for (int i = 0; i < count; i++) {
        int kind = s->t.kinds[entries[i].position];
        node->tokens |= kind == ELEMENT_TOKEN || kind == ELEMENT_NOT_TOKEN;
        s->entries[s->entry_count++] = entries[i];
    }
    s->found[place] = number;
    if ((uint32_t)s->node_count * 2 > s->found_room && !rehash(s, s->found_room * 2))
        return STACKS_NO_MEMORY;
    return number;
}

/* The same for entries whose tops may come several times. */
static int32_t settle(Stacks *s, int base, bool done) {
    int count = s->scratch_count - base;
    if (count > 1) {
        sort_entries(s->scratch + base, count);
        int kept = base;
        for (int i = base + 1; i < base + count; i++) {
            Entry entry = s->scratch[i], *last = &s->scratch[kept];
            if (entry.position != last->position || entry.progress != last->progress) {
                s->scratch[++kept] = entry;
                continue;
            }
            int32_t below = stacks_join(s, last->below, entry.below);
            if (below < 0) return below;
            s->scratch[kept].below = below; /* the scratch may have moved */
        }
        s->scratch_count = kept + 1;
    }
    return intern(s, base, done);
}

int32_t stacks_join(Stacks *s, int32_t a, int32_t b) {
    if (a == b || b == DEAD) return a;
    if (a == DEAD) return b;
    if (a > b) {
        int32_t c = a;
        a = b;
        b = c;
    }
    int32_t known = map_get(&s->joined, pair(a, b));
    if (known >= 0) return known;
    if (++s->depth > DEEPEST) return STACKS_TOO_DEEP;
    int base = s->scratch_count;
    int i = 0, j = 0;
    while (i < s->nodes[a].count || j < s->nodes[b].count) {
        const Entry *x = i < s->nodes[a].count ? &s->entries[s->nodes[a].first + i] : NULL;
        const Entry *y = j < s->nodes[b].count ? &s->entries[s->nodes[b].first + j] : NULL;
        Entry entry = x ? *x : *y;
        if (x && y) {
            Entry other = *y;
            bool same = x->position == y->position && x->progress == y->progress;
            if (same) {
                i++, j++;
                entry.below = stacks_join(s, entry.below, other.below);
                if (entry.below < 0) return entry.below;
            } else if (compare_entries(x, y) < 0) {
                i++;
            } else {
                entry = other;
                j++;
            }
        } else if (x) {
            i++;
        } else {
            j++;
        }
        int error = push_entry(s, entry);
        if (error) return error;
    }
    int32_t joined = intern(s, base, s->nodes[a].done || s->nodes[b].done);
    s->depth--;
    if (joined >= 0 && !map_put(&s->joined, pair(a, b), joined)) return STACKS_NO_MEMORY;
    return joined;
}

/* ---- moving on ---- */

static int gather(Stacks *s, int32_t position, int32_t below, bool *done);

static int copy_entries(Stacks *s, int32_t node, bool *done) {
    *done |= s->nodes[node].done;
    for (int i = 0; i < s->nodes[node].count; i++) {
        int error = push_entry(s, s->entries[s->nodes[node].first + i]);
        if (error) return error;
    }
    return 0;
}

/* The state in which whatever lies on top of the stacks is gone on with. */
static int32_t pop(Stacks *s, int32_t node) {
    if (s->nodes[node].popped >= 0) return s->nodes[node].popped;
    if (++s->depth > DEEPEST) return STACKS_TOO_DEEP;
    int base = s->scratch_count;
    bool done = s->nodes[node].done;
    for (int i = 0; i < s->nodes[node].count; i++) {
        Entry entry = s->entries[s->nodes[node].first + i];
        int error = gather(s, entry.position, entry.below, &done);
        if (error) return error;
    }
    int32_t state = settle(s, base, done);
    s->depth--;
    if (state >= 0) s->nodes[node].popped = state;
    return state;
}

/* `below` with a place to go on at put on top, unless nothing follows there. */
static int32_t push(Stacks *s, int32_t position, int32_t below) {
    if (s->t.kinds[position] == ELEMENT_END) return below;
    int base = s->scratch_count;
    int error = push_entry(s, (Entry){position, 0, below});
    return error ? error : intern(s, base, false);
}

/* The state at an element that is a rule. */
static int32_t enter(Stacks *s, int32_t position, int32_t below) {
    int32_t known = map_get(&s->entered, pair(position, below));
    if (known >= 0) return known;
    if (++s->depth > DEEPEST) return STACKS_TOO_DEEP;
    int32_t rest = push(s, position + 1, below);
    if (rest < 0) return rest;
    int base = s->scratch_count;
    bool done = false;
    int rule = s->t.values[position];
    for (int i = s->t.rules[rule]; i < s->t.rules[rule + 1]; i++) {
        int error = gather(s, s->t.alternatives[i], rest, &done);
        if (error) return error;
    }
    int32_t state = settle(s, base, done);
    s->depth--;
    if (state >= 0 && !map_put(&s->entered, pair(position, below), state))
        return STACKS_NO_MEMORY;
    return state;
}

/* Puts the tops that a place leads to on the scratch. */
static int gather(Stacks *s, int32_t position, int32_t below, bool *done) {
    int kind = s->t.kinds[position];
    if (kind == ELEMENT_CHAR) return push_entry(s, (Entry){position, s->t.values[position], below});
    if (kind == ELEMENT_TOKEN || kind == ELEMENT_NOT_TOKEN)
        return push_entry(s, (Entry){position, 0, below});
    int32_t state = kind == ELEMENT_END ? pop(s, below) : enter(s, position, below);
    return state < 0 ? state : copy_entries(s, state, done);
}

/* A question starts, or failed half way through. */
static void fresh(Stacks *s) {
    s->scratch_count = 0;
    s->depth = 0;
}

int32_t stacks_start(Stacks *s) {
    fresh(s);
    bool done = false;
    for (int i = s->t.rules[s->t.root]; i < s->t.rules[s->t.root + 1]; i++) {
        int error = gather(s, s->t.alternatives[i], DONE, &done);
        if (error) return error;
    }
    return settle(s, 0, done);
}

static int32_t read_class(Stacks *s, int32_t state, int class) {
    fresh(s);
    bool done = false;
    for (int i = 0; i < s->nodes[state].count; i++) {
        Entry entry = s->entries[s->nodes[state].first + i];
        if (s->t.kinds[entry.position] != ELEMENT_CHAR) continue;
        s->work++;
        int to = s->t.steps[entry.progress * s->t.byte_classes + class];
        if (to == CLASS_DEAD) continue;
        entry.progress = to;
        int error = to == CLASS_DONE ? gather(s, entry.position + 1, entry.below, &done)
                                     : push_entry(s, entry);
        if (error) return error;
    }
    return settle(s, 0, done);
}

static int new_row(Stacks *s) {
    int classes = s->t.byte_classes, room = s->row_room;
    if (!grow((void **)&s->next, &room, s->row_count + 1, classes * sizeof *s->next) ||
        !grow((void **)&s->plain, &s->row_room, s->row_count + 1, sizeof *s->plain))
        return STACKS_NO_MEMORY;
    s->plain[s->row_count] = (Plain){.next = -1};
    memset(s->next + (size_t)s->row_count * classes, -1, classes * sizeof *s->next);
    return s->row_count++;
}

int32_t stacks_byte(Stacks *s, int32_t state, uint8_t byte) {
    int class = s->t.byte_class[byte];
    if (s->nodes[state].row < 0) {
        int row = new_row(s);
        if (row < 0) return row;
        s->nodes[state].row = row;
    }
    size_t at = (size_t)s->nodes[state].row * s->t.byte_classes + class;
    if (s->next[at] < 0) {
        int32_t next = read_class(s, state, class);
        if (next < 0) return next;
        s->next[at] = next;
    }
    return s->next[at];
}

int32_t stacks_token(Stacks *s, int32_t state, int32_t token) {
    if (!s->nodes[state].tokens) return DEAD;
    fresh(s);
    bool done = false;
    for (int i = 0; i < s->nodes[state].count; i++) {
        Entry entry = s->entries[s->nodes[state].first + i];
        int kind = s->t.kinds[entry.position];
        bool same = s->t.values[entry.position] == token;
        if (kind == ELEMENT_TOKEN ? !same : kind != ELEMENT_NOT_TOKEN || same) continue;
        int error = gather(s, entry.position + 1, entry.below, &done);
        if (error) return error;
    }
    return settle(s, 0, done);
}

/* ---- forgetting ---- */

void stacks_hold(Stacks *s, Held *held) {
    held->next = &s->held;
    held->previous = s->held.previous;
    held->previous->next = held;
    s->held.previous = held;
}

void stacks_let_go(Held *held) {
    held->previous->next = held->next;
    held->next->previous = held->previous;
}

bool stacks_full(const Stacks *s) {
    return s->node_count >= NODES_KEPT || s->entry_count >= ENTRIES_KEPT ||
           s->entered.size >= 2 * NODES_KEPT || s->joined.size >= 2 * NODES_KEPT ||
           (size_t)s->row_count * s->t.byte_classes * sizeof *s->next >= ROWS_BYTES;
}

static void mark_held(const Held *held, int32_t *marks) {
    for (int i = 0; i < held->count; i++) marks[held->states[i]] = 1;
}

/* Marks what is reachable from marked nodes. */
static void mark_below(const Stacks *s, int32_t *marks) {
    for (int n = s->node_count - 1; n > DONE; n--)
        for (int i = 0; marks[n] && i < s->nodes[n].count; i++)
            marks[s->entries[s->nodes[n].first + i].below] = 1;
}

/* STACKS_TOO_MUCH when who asks, with what it holds on to besides, keeps no less than the average
 * of all who hold: of those there is always one. Whatever is left is reachable. */
static int judge(const Stacks *s, const Held *also) {
    if (s->node_count <= MOST_OPEN && s->entry_count <= MOST_READINGS) return 0;
    int32_t *marks = calloc(s->node_count, sizeof *marks);
    if (!marks) return STACKS_NO_MEMORY;
    int64_t holders = 0, nodes = 0, entries = 0;
    for (const Held *h = s->held.next; h != &s->held; h = h->next) holders++;
    mark_held(s->asking, marks);
    if (also) mark_held(also, marks);
    mark_below(s, marks);
    for (int n = 0; n < s->node_count; n++) {
        nodes += marks[n];
        entries += marks[n] ? s->nodes[n].count : 0;
    }
    free(marks);
    bool guilty = s->node_count > MOST_OPEN ? nodes * holders >= s->node_count
                                            : entries * holders >= s->entry_count;
    return guilty ? STACKS_TOO_MUCH : 0;
}

int stacks_tidy(Stacks *s, Held *also) {
    if (!stacks_full(s)) return 0;
    int32_t *to = calloc(s->node_count, sizeof *to); /* 1 = reachable, then the new number */
    if (!to) return STACKS_NO_MEMORY;
    if (also) stacks_hold(s, also);
    to[DEAD] = to[DONE] = 1;
    for (Held *h = s->held.next; h != &s->held; h = h->next) mark_held(h, to);
    mark_below(s, to);
    int nodes = 0, entries = 0;
    for (int n = 0; n < s->node_count; n++) {
        if (!to[n]) continue;
        Node node = s->nodes[n];
        for (int i = 0; i < node.count; i++) {
            Entry entry = s->entries[node.first + i];
            entry.below = to[entry.below];
            s->entries[entries + i] = entry;
        }
        node.first = entries;
        node.popped = node.row = -1;
        node.hash = hash_of(s->entries + entries, node.count, node.done);
        entries += node.count;
        to[n] = nodes;
        s->nodes[nodes++] = node;
    }
    for (Held *h = s->held.next; h != &s->held; h = h->next)
        for (int i = 0; i < h->count; i++) h->states[i] = to[h->states[i]];
    if (also) stacks_let_go(also);
    free(to);
    s->node_count = nodes;
    s->entry_count = entries;
    s->row_count = 0;
    map_clear(&s->entered);
    map_clear(&s->joined);
    s->collections++;
    if (!rehash(s, s->found_room)) return STACKS_NO_MEMORY;
    return judge(s, also);
}

bool stacks_init(Stacks *s, const Tables *tables) {
    *s = (Stacks){.t = *tables, .found_room = 256};
    s->held.next = s->held.previous = &s->held;
    pthread_mutex_init(&s->lock, NULL);
    bool room = map_init(&s->entered, 256) & map_init(&s->joined, 64) & rehash(s, 256);
    return room && intern(s, 0, false) == DEAD && intern(s, 0, true) == DONE;
}

void stacks_free(Stacks *s) {
    free(s->nodes);
    free(s->entries);
    free(s->scratch);
    free(s->found);
    free(s->next);
    free(s->plain);
    map_free(&s->entered);
    map_free(&s->joined);
    pthread_mutex_destroy(&s->lock);
}
