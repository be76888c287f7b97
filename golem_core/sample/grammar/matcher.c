/* Tokens against states. */

#include "matcher.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Fills folded and folded_of. */
static bool find_folded(Bound *b, const uint8_t *class, const uint8_t *byte_class) {
    int place[256], count = 0;
    for (int byte = 0; byte < 256; byte++) place[byte] = b->folded_of[byte] = -1;
    for (int byte = 0; class && byte < 256; byte++) {
        for (int other = 0; other < byte; other++) {
            if (class[other] != class[byte] || byte_class[other] == byte_class[byte]) continue;
            if (place[class[byte]] < 0) place[class[byte]] = count++;
            break;
        }
    }
    if (count > MOST_FOLDED) return false;
    for (int byte = 0; class && byte < 256; byte++) {
        int at = b->folded_of[byte] = place[class[byte]];
        if (at < 0) continue;
        Folded *folded = &b->folded[at];
        int i = 0;
        while (i < folded->count && byte_class[folded->bytes[i]] != byte_class[byte]) i++;
        if (i == folded->count) folded->bytes[folded->count++] = byte;
    }
    return true;
}

bool bound_init(Bound *b, const Tables *tables, const Trie *trie, const Trie *fold,
                const uint8_t *class) {
    *b = (Bound){.trie = trie, .fold = fold, .words = (trie->vocab + 31) / 32};
    if (!find_folded(b, class, tables->byte_class)) return false;
    for (int i = 0; i < MASKS; i++) b->masks[i].state = -1;
    b->path = calloc(trie->deepest + 1, sizeof *b->path);
    b->looks = calloc(trie->deepest + 1, sizeof *b->looks);
    b->marks = calloc(trie->ranked / 64 + 1, sizeof *b->marks);
    b->strays = calloc(trie->ranked / 64 + 1, sizeof *b->strays);
    b->none = calloc(b->words, sizeof *b->none);
    bool room = b->path && b->looks && b->marks && b->strays && b->none;
    if (!stacks_init(&b->stacks, tables) || !room) return false;
    int place[256];
    memset(place, -1, sizeof place);
    for (int byte = 0; byte < 128; byte++) {
        Stacks *s = &b->stacks;
        int class = tables->byte_class[byte];
        if (place[class] < 0) {
            place[class] = s->ascii_count++;
            s->ascii[place[class]] = (Alike){.byte = byte};
        }
        s->ascii[place[class]].groups |= trie->groups[byte];
    }
    return true;
}

void bound_free(Bound *b) {
    stacks_free(&b->stacks);
    for (int i = 0; i < MASKS; i++) free(b->masks[i].bits);
    free(b->path);
    free(b->looks);
    free(b->marks);
    free(b->strays);
    free(b->none);
}

static int32_t current(const Matcher *m) { return m->states[m->now]; }

/* Every question starts here: the lock, a fresh budget, room. */
static int begin(Matcher *m) {
    Stacks *s = &m->bound->stacks;
    pthread_mutex_lock(&s->lock);
    s->work = 0;
    s->asking = &m->held;
    return stacks_tidy(s, NULL);
}

static int finish(Matcher *m, int result) {
    pthread_mutex_unlock(&m->bound->stacks.lock);
    return result;
}

/* ---- one token ---- */

static int32_t after_bytes(Stacks *s, int32_t state, const uint8_t *bytes, int count) {
    for (int i = 0; i < count && state > DEAD; i++) state = stacks_byte(s, state, bytes[i]);
    return state;
}

/* The state after a token that does not end the generation. */
static int32_t after_token(Bound *b, int32_t state, int32_t token) {
    const Trie *t = b->trie;
    Stacks *s = &b->stacks;
    const uint8_t *text = t->text + t->start[token];
    int size = t->start[token + 1] - t->start[token];
    bool spelled = size && size <= LONGEST_TOKEN && *text;
    int32_t by_text = spelled ? after_bytes(s, state, text, size) : DEAD;
    if (by_text < 0 || !s->nodes[state].tokens || !(spelled || t->steers[token])) return by_text;
    int32_t by_name = stacks_token(s, state, token);
    return by_name < 0 ? by_name : stacks_join(s, by_text, by_name);
}

/* The state after a token, kept for when it is accepted. */
static int32_t try(Matcher *m, int32_t token) {
    if (m->tried == token) return m->states[REMEMBERED];
    int32_t state = after_token(m->bound, current(m), token);
    if (state >= 0) {
        m->tried = token;
        m->states[REMEMBERED] = state;
    }
    return state;
}

int matcher_allows(Matcher *m, int32_t token) {
    if (token < 0 || token >= m->bound->trie->vocab) return 0;
    if (m->bound->trie->ends[token]) return matcher_may_end(m);
    int error = begin(m);
    if (error) return finish(m, error);
    int32_t state = try(m, token);
    return finish(m, state < 0 ? state : state != DEAD);
}

static void move(Matcher *m, int32_t state) {
    m->now = (m->now + 1) % REMEMBERED;
    m->states[m->now] = state;
    if (m->past < REMEMBERED - 1) m->past++;
    m->tried = -1;
}

int matcher_accept(Matcher *m, int32_t token) {
    if (token < 0 || token >= m->bound->trie->vocab) return 0;
    int error = begin(m);
    if (error) return finish(m, error);
    int32_t state = current(m);
    if (m->bound->trie->ends[token]) {
        if (!m->bound->stacks.nodes[state].done) return finish(m, 0);
    } else {
        state = try(m, token);
        if (state <= DEAD) return finish(m, state);
    }
    move(m, state);
    return finish(m, 1);
}

int matcher_feed(Matcher *m, const uint8_t *bytes, int count) {
    int error = begin(m);
    if (error) return finish(m, error);
    int32_t state = after_bytes(&m->bound->stacks, current(m), bytes, count);
    if (state <= DEAD) return finish(m, state);
    move(m, state);
    return finish(m, 1);
}

/* ---- all tokens ---- */

/* The state that every character beyond ASCII leads to; -1 when they differ. */
static int beyond_ascii(Stacks *s, int32_t state, int32_t *to) {
    bool any = false;
    for (int i = 0; i < s->nodes[state].count; i++) {
        Entry entry = s->entries[s->nodes[state].first + i];
        if (s->t.kinds[entry.position] != ELEMENT_CHAR) continue;
        int beyond = s->t.beyond[entry.progress];
        any |= beyond != BEYOND_NONE;
        if (beyond != BEYOND_SOME) continue;
        *to = -1;
        return 0;
    }
    *to = any ? after_bytes(s, state, (const uint8_t *)"\xc3\xa9", 2) : DEAD;
    return *to < 0 ? *to : 0;
}

enum { MOST_APART = 48 }; /* states that are looked at to know what letters lead to */

/* The groups of which every character may follow. */
static int alive(Stacks *s, int32_t state, uint64_t *groups) {
    int32_t beyond = -1;
    *groups = GROUPS_ALL;
    for (int i = 0; i < s->ascii_count; i++) {
        int32_t next = stacks_byte(s, state, s->ascii[i].byte);
        if (next < 0) return next;
        if (next == DEAD) *groups &= ~s->ascii[i].groups;
    }
    int error = beyond_ascii(s, state, &beyond);
    if (beyond <= DEAD) *groups &= ~GROUP_BEYOND_ASCII;
    return error;
}

/* States by how many characters lead to them, one of these groups each. */
typedef struct {
    int32_t states[MOST_APART];
    int far[MOST_APART];
    int count;
} Reached;

/* Adds where one more character of the groups leads; 0 when there are too many. */
static int reach(Stacks *s, Reached *r, int from, uint64_t groups) {
    int32_t beyond = DEAD;
    if (groups & GROUP_BEYOND_ASCII) {
        int error = beyond_ascii(s, r->states[from], &beyond);
        if (error) return error;
    }
    for (int i = 0; i <= s->ascii_count; i++) {
        int32_t to = i == s->ascii_count ? beyond : DEAD;
        if (i < s->ascii_count && groups & s->ascii[i].groups)
            to = stacks_byte(s, r->states[from], s->ascii[i].byte);
        if (to < 0) return to;
        if (to == DEAD) continue;
        int at = 0;
        while (at < r->count && r->states[at] != to) at++;
        if (at == MOST_APART) return 0;
        if (at == r->count) {
            r->states[at] = to;
            r->far[at] = r->far[from] + 1;
            r->count++;
        }
    }
    return 1;
}

/* Fills `wide` and `reach`, for a state where letters lead to different states, as in a search for
 * a word: nothing may be forbidden after any of them all the same. */
static int explore_apart(Stacks *s, int32_t state, Plain *plain) {
    Reached r = {.states = {state}, .count = 1};
    uint64_t groups, after;
    int span = 0, error = alive(s, state, &groups);
    if (error) return error;
    for (int i = 0; i < s->ascii_count; i++) { /* escapes and ends of strings */
        if (!(groups & s->ascii[i].groups)) continue;
        int32_t to = stacks_byte(s, state, s->ascii[i].byte);
        error = to < 0 ? to : alive(s, to, &after);
        if (error) return error;
        if (__builtin_popcountll(after & GROUPS_LETTERS) < 13) groups &= ~s->ascii[i].groups;
    }
    for (int i = 0; groups & GROUPS_LETTERS; i++) {
        span = i < r.count ? r.far[i] : MOST_PLAIN;
        if (i == r.count) break;
        error = alive(s, r.states[i], &after);
        if (error) return error;
        if (groups & ~after) break;
        int more = reach(s, &r, i, groups);
        if (more < 0) return more;
        if (!more) break;
    }
    plain->wide = span ? groups : 0;
    plain->reach = span < MOST_PLAIN ? span : MOST_PLAIN;
    return 0;
}

/* Where most letters lead that may follow: the state itself, if it is one of several. An error
 * too. */
static int32_t most_lead_to(Stacks *s, int32_t state) {
    int32_t best = DEAD, found[26];
    int most = 0, count = 0, letters[26];
    for (int i = 0; i < s->ascii_count; i++) {
        int some = __builtin_popcountll(s->ascii[i].groups & GROUPS_LETTERS), at = 0;
        if (!some) continue;
        int32_t to = stacks_byte(s, state, s->ascii[i].byte);
        if (to < 0) return to;
        if (to == DEAD) continue;
        while (at < count && found[at] != to) at++;
        if (at == count) {
            found[count] = to;
            letters[count++] = 0;
        }
        letters[at] += some;
        if (letters[at] < most || (letters[at] == most && to != state)) continue;
        best = to;
        most = letters[at];
    }
    return best;
}

/* Fills plain[row of state]: where letters lead, and which other characters lead there too. */
static int explore(Stacks *s, int32_t state) {
    int32_t to = most_lead_to(s, state), beyond = -1;
    if (to < 0) return to;
    uint64_t groups = GROUPS_ALL, dead = GROUPS_ALL;
    bool apart = false;
    for (int i = 0; i < s->ascii_count; i++) {
        int32_t next = stacks_byte(s, state, s->ascii[i].byte);
        if (next < 0) return next;
        if (next != to) groups &= ~s->ascii[i].groups;
        if (next != DEAD) dead &= ~s->ascii[i].groups;
        apart |= next != to && next != DEAD && s->ascii[i].groups & GROUPS_LETTERS;
    }
    int error = beyond_ascii(s, state, &beyond);
    if (error) return error;
    if (beyond != to) groups &= ~GROUP_BEYOND_ASCII;
    if (beyond != DEAD) dead &= ~GROUP_BEYOND_ASCII;
    Plain plain = {
        .next = to,
        .groups = to == DEAD ? 0 : groups,
        .loops = to == state ? groups : 0,
        .dead = dead,
        .span = to == DEAD ? 0 : to == state ? MOST_PLAIN : 1,
        .most = MOST_PLAIN,
    };
    if (apart) error = explore_apart(s, state, &plain);
    s->plain[s->nodes[state].row] = plain;
    return error;
}

/* Whether everything from the character a node is in down may follow a state, looked up one state
 * a character. What is learnt about the first of them is kept. */
static int all_may(Stacks *s, int32_t state, const TrieNode *node) {
    int32_t at = state;
    bool alike = true; /* all states so far have the groups of the first */
    for (int done = 0; done < node->chars; done++) {
        int row = s->nodes[at].row;
        if (row < 0 || s->plain[row].next < 0) {
            int error = explore(s, at);
            if (error) return error;
            row = s->nodes[at].row;
        }
        const Plain *plain = &s->plain[row];
        Plain *first = &s->plain[s->nodes[state].row];
        if (!(node->groups & ~plain->wide) && done + plain->reach >= node->chars) return 1;
        if (node->groups & ~plain->groups) {
            if (done && alike && !(first->groups & ~plain->dead)) first->most = done;
            return 0;
        }
        alike &= plain->groups == first->groups;
        bool rest = done + plain->span >= node->chars;
        int span = rest ? done + plain->span : done + 1;
        if (alike && span > first->span) first->span = span;
        if (rest) {
            if (done == 1 && plain->next == at) first->loops = first->groups & plain->groups;
            return 1;
        }
        at = plain->next;
    }
    return 1;
}

static void look_at(const Stacks *s, int32_t state, Look *look) {
    int32_t row = look->row = s->nodes[state].row;
    bool known = row >= 0 && s->plain[row].next >= 0;
    look->groups = known ? s->plain[row].groups : GROUPS_ALL;
    look->span = known ? s->plain[row].span : 0;
    look->most = known ? s->plain[row].most : MOST_PLAIN;
    look->loops = known ? s->plain[row].loops : 0;
    look->wide = known ? s->plain[row].wide : 0;
    look->reach = known ? s->plain[row].reach : 0;
}

/* Ranks that may follow are marked where they begin and where they end, so that a long row costs
 * what a short one does. */
static inline void allow_ranks(uint64_t *marks, uint32_t from, uint32_t to) {
    marks[from >> 6] ^= 1ull << (from & 63);
    marks[to >> 6] ^= 1ull << (to & 63);
}

/* The same for those of so many characters at most. */
static void allow_short(const Trie *t, uint64_t *marks, uint32_t from, uint32_t to, int most) {
    uint64_t before = 0;
    for (uint32_t r = from; r <= to; r++) {
        uint64_t may = r < to && t->lengths[r] <= most;
        marks[r >> 6] ^= (may ^ before) << (r & 63);
        before = may;
    }
}

/* Marks of borders become marks of what lies between; returns how many. */
static int between(uint64_t *marks, int words) {
    uint64_t within = 0; /* all ones while a row goes on */
    int count = 0;
    for (int w = 0; w < words; w++) {
        uint64_t row = marks[w];
        for (int shift = 1; shift < 64; shift *= 2) row ^= row << shift;
        marks[w] = row ^= within;
        within = (uint64_t)((int64_t)row >> 63);
        count += __builtin_popcountll(row);
    }
    return count;
}

/* Turns the bits of tokens whose ranks are marked, or are not. */
static void turn(const Trie *t, const uint64_t *marks, bool marked, uint32_t *bits) {
    const int words = t->ranked / 64 + 1;
    for (int w = 0; w < words; w++) {
        uint64_t those = marked ? marks[w] : ~marks[w];
        if (w == words - 1) those &= (1ull << (t->ranked & 63)) - 1;
        for (; those; those &= those - 1) {
            int32_t token = t->order[64 * w + __builtin_ctzll(those)];
            bits[token >> 5] ^= 1u << (token & 31);
        }
    }
}

/* The bits of tokens whose ranks were marked. */
static void gather_marked(Bound *b, uint32_t *bits) {
    const Trie *t = b->fold ? b->fold : b->trie;
    const int words = t->ranked / 64 + 1;
    const bool most = between(b->marks, words) > t->ranked / 2; /* then take the few others out */
    memcpy(bits, most ? b->trie->spelled : b->none, b->words * sizeof *bits);
    turn(t, b->marks, !most, bits);
    if (!b->strayed) return;
    between(b->strays, words);
    turn(b->trie, b->strays, true, bits);
}

/* Makes room when there is little. The first states on the way, `depth` of them, may get other
 * numbers. */
static int make_room(Bound *b, int depth) {
    Stacks *s = &b->stacks;
    if (!stacks_full(s)) return 0;
    Held way = {.states = b->path, .count = depth};
    int error = stacks_tidy(s, &way);
    for (int i = 0; i < depth; i++) look_at(s, b->path[i], &b->looks[i]);
    return error;
}

/* The state after the byte of a node `depth` bytes down, when it was not asked for before. */
static int32_t ask(Bound *b, int depth, uint8_t byte) {
    int error = make_room(b, depth + 1);
    if (error) return error;
    int32_t to = stacks_byte(&b->stacks, b->path[depth], byte);
    look_at(&b->stacks, b->path[depth], &b->looks[depth]);
    return to;
}

/* The state after the only token from a node on; -1 when a byte of it was not asked for before. */
static inline int32_t at_its_end(const Bound *b, const TrieNode *node, int32_t row) {
    const Stacks *s = &b->stacks;
    while (row >= 0) {
        int32_t to = s->next[(size_t)row * s->t.byte_classes + s->t.byte_class[node->byte]];
        if (to <= DEAD || !node->child) return to;
        row = s->nodes[to].row;
        node = &b->trie->nodes[node->child];
    }
    return -1;
}

/* Whether bytes that are folded lead to different states, `depth` bytes down. */
static int mixed(Bound *b, int depth, int folded) {
    Stacks *s = &b->stacks;
    int32_t row = b->looks[depth].row;
    if (row >= 0 && s->plain[row].asked >> folded & 1) return s->plain[row].mixed >> folded & 1;
    int error = make_room(b, depth + 1);
    if (error) return error;
    const int32_t state = b->path[depth];
    const Folded *bytes = &b->folded[folded];
    int32_t first = stacks_byte(s, state, bytes->bytes[0]), to = first;
    for (int i = 1; i < bytes->count && to == first && to >= 0; i++)
        to = stacks_byte(s, state, bytes->bytes[i]);
    if (to < 0) return to;
    Plain *plain = &s->plain[s->nodes[state].row];
    plain->asked |= 1u << folded;
    if (to != first) plain->mixed |= 1u << folded;
    look_at(s, state, &b->looks[depth]);
    return to != first;
}

static int walk(Bound *b, const Trie *t, uint32_t i, uint32_t until);

/* Walks along the members of a folded node by themselves. */
static int walk_apart(Bound *b, uint32_t folded) {
    const Trie *t = b->trie;
    if (!b->strayed) memset(b->strays, 0, (t->ranked / 64 + 1) * sizeof *b->strays);
    b->strayed = true;
    for (uint32_t m = b->fold->members_at[folded]; m < b->fold->members_at[folded + 1]; m++) {
        uint32_t member = b->fold->members[m];
        int error = walk(b, t, member, t->nodes[member].next);
        if (error) return error;
    }
    return 0;
}

/* Marks the tokens whose texts may follow, from one node of a trie to another. */
static int walk(Bound *b, const Trie *t, uint32_t i, uint32_t until) {
    Stacks *s = &b->stacks;
    const uint8_t *class = s->t.byte_class;
    const int classes = s->t.byte_classes;
    uint64_t *marks = t == b->fold || !b->fold ? b->marks : b->strays;
    while (i != until) {
        const TrieNode *node = &t->nodes[i], *next = &t->nodes[node->next];
        /* places of the states before its byte and character */
        const int depth = node->depth - 1, before = depth - node->within;
        Look *look = &b->looks[before];
        if (node->chars != NOT_PLAIN) {
            bool alike = !(node->groups & ~look->groups);
            int all = !(node->groups & ~look->loops) || (alike && node->chars <= look->span) ||
                      (!(node->groups & ~look->wide) && node->chars <= look->reach);
            if (!all && alike && node->chars <= look->most) {
                int error = make_room(b, depth + 1);
                all = error ? error : all_may(s, b->path[before], node);
                if (all < 0) return all;
                look_at(s, b->path[before], look);
                alike = !(node->groups & ~look->groups);
            }
            bool counted = !all && alike && look->most == look->span;
            if (all) allow_ranks(marks, node->rank, next->rank);
            if (counted) allow_short(t, marks, node->rank, next->rank, look->said + look->most);
            if (all || counted) {
                i = node->next;
                continue;
            }
        }
        const int folded = t == b->fold ? b->folded_of[node->byte] : -1;
        const int apart = folded < 0 ? 0 : mixed(b, depth, folded);
        if (apart) {
            int error = apart < 0 ? apart : walk_apart(b, i);
            if (error) return error;
            i = node->next;
            continue;
        }
        int32_t row = b->looks[depth].row;
        if (t != b->fold && next->rank == node->rank + 1) {
            int32_t to = at_its_end(b, node, row);
            if (to >= 0) {
                allow_ranks(marks, node->rank, node->rank + (to != DEAD));
                i = node->next;
                continue;
            }
        }
        int32_t to = row < 0 ? -1 : s->next[(size_t)row * classes + class[node->byte]];
        if (to < 0) to = ask(b, depth, node->byte);
        if (to < 0) return to;
        if (to == DEAD || !node->child) {
            if (to != DEAD) allow_ranks(marks, node->rank, next->rank);
            i = node->next;
            continue;
        }
        i = node->child;
        allow_ranks(marks, node->rank, t->nodes[i].rank);
        b->path[depth + 1] = to;
        b->looks[depth + 1].said = look->said + 1;
        look_at(s, to, &b->looks[depth + 1]);
    }
    return 0;
}

/* Tokens that the state's token elements name. */
static void by_name(Bound *b, int32_t state, uint32_t *bits) {
    const Trie *t = b->trie;
    const Stacks *s = &b->stacks;
    int32_t except = -1; /* the one that every "any token but" excludes, -2 = none */
    for (int i = 0; i < s->nodes[state].count; i++) {
        Entry entry = s->entries[s->nodes[state].first + i];
        int kind = s->t.kinds[entry.position];
        int32_t token = s->t.values[entry.position];
        if (kind == ELEMENT_TOKEN && !t->ends[token]) bits[token >> 5] |= 1u << (token & 31);
        if (kind == ELEMENT_NOT_TOKEN) except = except == -1 || except == token ? token : -2;
    }
    if (except == -1) return;
    for (int i = 0; i < t->vocab; i++) {
        bool spelled = t->start[i + 1] > t->start[i] && t->text[t->start[i]] &&
                       t->start[i + 1] - t->start[i] <= LONGEST_TOKEN;
        if (i != except && !t->ends[i] && (spelled || t->steers[i]))
            bits[i >> 5] |= 1u << (i & 31);
    }
}

static int fill(Matcher *m, uint32_t *bits) {
    Bound *b = m->bound;
    Stacks *s = &b->stacks;
    const Trie *t = b->fold ? b->fold : b->trie;
    memset(b->marks, 0, (t->ranked / 64 + 1) * sizeof *b->marks);
    b->strayed = false;
    b->path[0] = current(m);
    b->looks[0].said = 0;
    look_at(s, b->path[0], &b->looks[0]);
    int error = walk(b, t, 0, t->count);
    if (error) return error;
    gather_marked(b, bits);
    if (s->nodes[current(m)].tokens) by_name(b, current(m), bits);
    if (s->nodes[current(m)].done)
        for (int i = 0; i < b->trie->vocab; i++)
            if (b->trie->ends[i]) bits[i >> 5] |= 1u << (i & 31);
    return 0;
}

/* The mask of the current state, out of those kept or a new one. */
static int mask_of(Matcher *m, uint32_t **bits) {
    Bound *b = m->bound;
    if (b->collections != b->stacks.collections) { /* states have other numbers now */
        for (int i = 0; i < MASKS; i++) b->masks[i].state = -1;
        b->collections = b->stacks.collections;
    }
    int oldest = 0;
    for (int i = 0; i < MASKS; i++) {
        if (b->masks[i].state == current(m)) {
            b->masks[i].age = ++b->age;
            *bits = b->masks[i].bits;
            return 0;
        }
        if (b->masks[i].age < b->masks[oldest].age) oldest = i;
    }
    if (!b->masks[oldest].bits) b->masks[oldest].bits = malloc(b->words * sizeof **bits);
    *bits = b->masks[oldest].bits;
    if (!*bits) return STACKS_NO_MEMORY;
    b->masks[oldest].state = -1;
    int error = fill(m, *bits);
    if (error) return error;
    if (b->collections == b->stacks.collections) {
        b->masks[oldest].state = current(m);
        b->masks[oldest].age = ++b->age;
    }
    return 0;
}

int matcher_mask(Matcher *m, uint32_t *bits) {
    int error = begin(m);
    uint32_t *mask;
    if (!error) error = mask_of(m, &mask);
    if (!error) memcpy(bits, mask, m->bound->words * sizeof *bits);
    return finish(m, error);
}

int matcher_narrow(Matcher *m, float *row, int vocab) {
    int error = begin(m), left = 0;
    uint32_t *mask;
    if (!error) error = mask_of(m, &mask);
    if (error) return finish(m, error);
    int words = m->bound->words < vocab / 32 ? m->bound->words : vocab / 32;
    for (int w = 0; w < words; w++) {
        uint32_t bits = mask[w];
        float *part = row + 32 * w;
        left += __builtin_popcount(bits);
        if (bits == 0xffffffffu) continue;
        for (int i = 0; i < 32; i++) part[i] = bits >> i & 1 ? part[i] : -INFINITY;
    }
    for (int i = 32 * words; i < vocab; i++) {
        bool may = i < m->bound->trie->vocab && mask[i >> 5] >> (i & 31) & 1;
        left += may;
        if (!may) row[i] = -INFINITY;
    }
    return finish(m, left);
}

/* ---- the matcher itself ---- */

int matcher_reset(Matcher *m) {
    Stacks *s = &m->bound->stacks;
    memset(m->states, 0, sizeof m->states);
    m->now = m->past = 0;
    m->tried = -1;
    int error = begin(m);
    if (error) return finish(m, error);
    int32_t state = stacks_start(s);
    if (state >= 0) m->states[0] = state;
    return finish(m, state < 0 ? state : 0);
}

int matcher_init(Matcher *m, Bound *bound) {
    memset(m, 0, sizeof *m);
    m->bound = bound;
    m->held.states = m->states;
    m->held.count = REMEMBERED + 2;
    pthread_mutex_lock(&bound->stacks.lock);
    stacks_hold(&bound->stacks, &m->held);
    pthread_mutex_unlock(&bound->stacks.lock);
    return matcher_reset(m);
}

void matcher_free(Matcher *m) {
    if (!m->bound) return;
    pthread_mutex_lock(&m->bound->stacks.lock);
    stacks_let_go(&m->held);
    pthread_mutex_unlock(&m->bound->stacks.lock);
}

/* Both are of one grammar. */
void matcher_copy(Matcher *to, const Matcher *from) {
    pthread_mutex_lock(&to->bound->stacks.lock);
    memcpy(to->states, from->states, sizeof to->states);
    to->now = from->now;
    to->past = from->past;
    to->tried = from->tried;
    pthread_mutex_unlock(&to->bound->stacks.lock);
}

bool matcher_may_end(const Matcher *m) {
    pthread_mutex_lock(&m->bound->stacks.lock);
    bool done = m->bound->stacks.nodes[current(m)].done;
    pthread_mutex_unlock(&m->bound->stacks.lock);
    return done;
}

bool matcher_may_go_on(const Matcher *m) {
    pthread_mutex_lock(&m->bound->stacks.lock);
    bool tops = m->bound->stacks.nodes[current(m)].count > 0;
    pthread_mutex_unlock(&m->bound->stacks.lock);
    return tops;
}

bool matcher_rollback(Matcher *m, int tokens) {
    if (tokens < 0 || tokens > m->past) return false;
    m->now = (m->now + REMEMBERED - tokens) % REMEMBERED;
    m->past -= tokens;
    m->tried = -1;
    return true;
}
