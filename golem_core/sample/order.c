/* Finding and sorting the best candidates, without sorting all of a vocabulary when few are asked
 * for. Keys are 64 bits: the logit's bits, turned so that a better logit is a smaller number, above
 * the position; so no two are equal and every method gives the same order. */

#include <math.h>
#include <string.h>

#include "chain.h"

/* Unsigned numbers in the order of the floats. -0 counts as 0, as it does for the floats. */
uint32_t ascending_bits(float x) {
    uint32_t bits;
    x += 0.0f;
    memcpy(&bits, &x, 4);
    return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}

static uint64_t key_of(float logit, uint32_t position) {
    return (uint64_t)~ascending_bits(logit) << 32 | position;
}

static float logit_of(uint64_t key) {
    uint32_t bits = ~(uint32_t)(key >> 32);
    float logit;
    bits ^= bits >> 31 ? 0x80000000u : 0xffffffffu;
    memcpy(&logit, &bits, 4);
    return logit;
}

/* The upper half of the key of -INFINITY. */
enum { BANNED = 0xff800000u };

/* Keys from which on wider digits pay. */
enum { MANY = 4096 };

/* Ascending. Keys with equal logits must come in the order of their positions, so that only the
 * upper halves need sorting. spare: as long as keys. */
void sort_keys(uint64_t *keys, uint64_t *spare, int n) {
    if (n <= 48) {
        for (int i = 1; i < n; i++) {
            uint64_t key = keys[i];
            int j = i;
            for (; j > 0 && keys[j - 1] > key; j--) keys[j] = keys[j - 1];
            keys[j] = key;
        }
        return;
    }
    uint64_t *from = keys, *to = spare;
    const int width = n < MANY ? 8 : 11, digits = 1 << width;
    for (int shift = 32; shift < 64; shift += width) {
        int starts[1 << 11];
        memset(starts, 0, digits * sizeof *starts);
        for (int i = 0; i < n; i++) starts[from[i] >> shift & (digits - 1)]++;
        if (starts[from[0] >> shift & (digits - 1)] == n) continue; /* all digits are equal */
        for (int digit = 0, at = 0; digit < digits; digit++) {
            int count = starts[digit];
            starts[digit] = at;
            at += count;
        }
        for (int i = 0; i < n; i++) to[starts[from[i] >> shift & (digits - 1)]++] = from[i];
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != keys) memcpy(keys, from, n * sizeof *keys);
}

/* The best k keys of a stream: a buffer that is sorted and cut whenever it is full. */
typedef struct {
    uint64_t *keys, *spare;
    int k, room, size;
    float threshold; /* a logit must be above it to matter */
} Best;

static void cut(Best *best) {
    sort_keys(best->keys, best->spare, best->size);
    if (best->size > best->k) best->size = best->k;
}

static inline void offer(Best *best, float logit, int position) {
    if (!(logit > best->threshold)) return;
    best->keys[best->size++] = key_of(logit, position);
    if (best->size < best->room) return;
    cut(best);
    best->threshold = logit_of(best->keys[best->k - 1]);
}

enum { FEW_LANES = 8 }; /* of a chunk, that are looked at one by one */

static Best best_of(Workspace *w, int k, int n) {
    int room = 2 * k + 192 < n ? 2 * k + 192 : n;
    return (Best){w->keys, w->spare_keys, k, room, 0, -INFINITY};
}

static void offer_some(Best *best, const float *row, int i, int end) {
    for (; (i = row_above(row, i, end, best->threshold)) + ROW_STEP <= end; i += ROW_STEP)
        for (int j = 0; j < ROW_STEP; j++) offer(best, row[i + j], i + j);
    for (; i < end; i++) offer(best, row[i], i);
}

/* The chunk of a row from position `from` on: of its groups those that have what matters, in the
 * order of positions; all of it where they are many. maxima: of its groups. */
static void offer_chunk(Best *best, const float *row, int from, const float *maxima) {
    int lanes[FEW_LANES], count = 0;
    for (int j = 0; j < LANES; j++) {
        if (!(maxima[j] > best->threshold)) continue;
        if (count == FEW_LANES) {
            offer_some(best, row, from, from + CHUNK);
            return;
        }
        lanes[count++] = j;
    }
    for (int i = from; i < from + CHUNK; i += LANES)
        for (int k = 0; k < count; k++) offer(best, row[i + lanes[k]], i + lanes[k]);
}

float best_value(Workspace *w, const float *values, int n, int k) {
    if (k > n) return -INFINITY;
    Best best = best_of(w, k, n);
    offer_some(&best, values, 0, n);
    cut(&best);
    return best.size < k ? -INFINITY : logit_of(best.keys[k - 1]);
}

void list_all(Workspace *w) {
    if (w->listed) return;
    for (int i = 0; i < w->vocab; i++) w->list[i] = (Candidate){i, w->logits[i], 0.0f};
    w->size = w->vocab;
    w->listed = true;
    w->sorted = false;
}

/* The best k of an unlisted row become the list. */
static void list_best(Workspace *w, int k) {
    const float *row = w->logits;
    int n = w->vocab, groups = maxima_of(n);
    float enough = row_threshold(w, k);
    Best best = best_of(w, k, n);
    best.threshold = nextafterf(enough, -INFINITY);
    for (int g = 0; (g = row_above(w->maxima, g, groups, best.threshold)) < groups;) {
        int chunk = g / LANES;
        offer_chunk(&best, row, chunk * CHUNK, w->maxima + chunk * LANES);
        g = (chunk + 1) * LANES;
    }
    offer_some(&best, row, groups / LANES * CHUNK, n);
    cut(&best);
    int i = 0;
    for (; i < best.size; i++) {
        int32_t id = (int32_t)(uint32_t)best.keys[i];
        w->list[i] = (Candidate){id, row[id], 0.0f};
    }
    for (int id = 0; i < k; id++) /* fewer are finite than were asked for */
        if (row[id] == -INFINITY) w->list[i++] = (Candidate){id, row[id], 0.0f};
    w->size = k;
    w->listed = w->sorted = true;
}

void best_positions(Workspace *w, int k, float enough) {
    Best best = best_of(w, k, w->size);
    best.threshold = nextafterf(enough, -INFINITY);
    for (int i = 0; i < w->size; i++) offer(&best, w->list[i].logit, i);
    cut(&best);
    for (int i = 0; best.size < k; i++)
        if (w->list[i].logit == -INFINITY) best.keys[best.size++] = key_of(-INFINITY, i);
}

void gather(Workspace *w, int k) {
    for (int i = 0; i < k; i++) w->spare[i] = w->list[(uint32_t)w->keys[i]];
    Candidate *swap = w->list;
    w->list = w->spare;
    w->spare = swap;
    w->size = k;
    w->sorted = true;
}

void logit_keys(Workspace *w) {
    for (int i = 0; i < w->size; i++) w->keys[i] = key_of(w->list[i].logit, i);
}

enum { BUCKETS = 1024 };

/* Rises with the distance, 32 to a nat. The last one holds all that is far off. */
static inline int bucket_of(float distance) {
    float scaled = distance * 32.0f;
    return scaled < BUCKETS - 1 ? (int)scaled : BUCKETS - 1;
}

int sort_share(Workspace *w, float share, int least) {
    double mass[BUCKETS] = {0.0}, all = 0.0, held = 0.0;
    int counts[BUCKETS] = {0}, edge = 0, found = 0, n = 0;
    for (int i = 0; i < w->size; i++) {
        int bucket = bucket_of(w->floats[i]);
        mass[bucket] += w->list[i].p;
        counts[bucket]++;
    }
    for (int i = 0; i < BUCKETS; i++) all += mass[i];
    for (;; edge++) {
        held += mass[edge];
        found += counts[edge];
        if (edge == BUCKETS - 1 || (held > 1.001 * share * all && found >= least)) break;
    }
    for (int i = 0; i < w->size; i++) {
        w->keys[n] = w->keys[i];
        n += bucket_of(w->floats[i]) <= edge;
    }
    sort_keys(w->keys, w->spare_keys, n);
    return n;
}

void keep_best(Workspace *w, int k) {
    w->unsorted_yet = false;
    int n = w->listed ? w->size : w->vocab;
    if (k > n) k = n;
    if (!w->listed && k < n / 4) {
        list_best(w, k);
        return;
    }
    list_all(w);
    if (w->sorted) {
        w->size = k;
    } else if (k < n / 4) {
        best_positions(w, k, -INFINITY);
        gather(w, k);
    } else {
        sort_list(w);
        w->size = k;
    }
}

void sort_list(Workspace *w) {
    w->unsorted_yet = false;
    if (w->listed && w->sorted) return;
    const int n = w->listed ? w->size : w->vocab;
    int alive = 0;
    if (w->listed)
        logit_keys(w);
    else
        for (int i = 0; i < n; i++) w->keys[i] = key_of(w->logits[i], i);
    for (int i = 0; i < n; i++) {
        uint64_t key = w->keys[i];
        w->keys[alive] = key;
        alive += key >> 32 != BANNED;
    }
    sort_keys(w->keys, w->spare_keys, alive);
    for (int i = 0, at = alive; at < n; i++) /* in the order they had */
        if ((w->listed ? w->list[i].logit : w->logits[i]) == -INFINITY)
            w->keys[at++] = key_of(-INFINITY, i);
    if (w->listed) {
        gather(w, n);
        return;
    }
    for (int i = 0; i < n; i++)
        w->list[i] = (Candidate){(int32_t)(uint32_t)w->keys[i], logit_of(w->keys[i]), 0.0f};
    w->size = n;
    w->listed = w->sorted = true;
}
