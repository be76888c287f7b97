# distutils: sources = golem_core/sample/chain.c golem_core/sample/order.c golem_core/sample/filters.c golem_core/sample/history.c golem_core/sample/draw.c golem_core/sample/exp.c golem_core/sample/row.c golem_core/sample/rng.c
# distutils: include_dirs = golem_core/sample
# distutils: libraries = m
"""The sampler chain in C: one call draws for every scored row of a pass, without the GIL.

This file only moves settings in and tokens out; what a step does is in chain.h and its sources.
"""

import math
import secrets

import numpy as np

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from golem_core.sample.grammar._matcher import gave_up
from golem_core.sample.grammar.errors import GrammarError
from golem_core.sample.params import NAMES, RANDOM_SEED, ParamError
from golem_core.sample.probs import Probs


cdef extern from "rng.h":
    ctypedef struct Rng:
        pass
    void rng_seed(Rng *rng, uint32_t seed)
    uint32_t rng_next(Rng *rng)
    double rng_double(Rng *rng)
    float rng_float(Rng *rng)


cdef extern from "constraint.h":
    const char *CONSTRAINT_CAPSULE
    ctypedef struct Constraint:
        void *self
        int (*accept)(void *, int32_t) nogil


cdef extern from "chain.h":
    ctypedef struct CWorkspace "Workspace":
        pass

    ctypedef struct DryHeads:
        const int32_t *first
        const int32_t *start
        const int32_t *tails

    ctypedef struct Chain:
        int vocab
        int32_t *steps
        int step_count
        int32_t *bias_ids
        float *biases
        int bias_count
        float temperature, dynatemp_range, dynatemp_exponent
        int top_k, min_keep
        float top_p, min_p, typical_p, top_n_sigma
        float xtc_probability, xtc_threshold
        bint penalises
        int penalty_last_n
        float repeat_penalty, frequency_penalty, presence_penalty
        bint dries
        float dry_multiplier, dry_base
        int dry_allowed_length, dry_last_n
        DryHeads heads
        int32_t *counts
        int mirostat
        float mirostat_tau, mirostat_eta, mirostat_mu
        bint adaptive
        float adaptive_target, adaptive_decay, adaptive_sum, adaptive_weight
        const Constraint *constraint
        double constraint_seconds
        int redrawn
        bint greedy
        Rng draw_rng
        Rng xtc_rng
        int probs
        bint probs_after
        int32_t *probs_ids
        float *probs_values
        int probs_size
        float probs_drawn

    int PICK_NOT_FINITE
    int PICK_NO_MEMORY
    int PICK_DEAD_END
    int PICK_GAVE_UP
    bint workspace_init(CWorkspace *w, int vocab)
    void workspace_free(CWorkspace *w)
    void chain_free(Chain *chain)
    int maxima_of(int vocab)
    int chain_pick(
        Chain *chain, CWorkspace *w, const float *logits, float *writable, const float *peaks
    ) nogil
    bint chain_accept(Chain *chain, int32_t token)
    bint row_probs(
        CWorkspace *w, const float *logits, int token, int n, int32_t *ids, float *values,
        float *of_token,
    ) nogil


class NonFiniteLogits(ArithmeticError):
    """A row of logits holds NaN or +inf, or nothing but -inf: there is nothing to draw from."""


cdef class Generator:
    """std::mt19937 and its numbers of [0, 1), as the sampler uses it."""

    cdef Rng rng

    def __init__(self, uint32_t seed):
        rng_seed(&self.rng, seed)

    def next32(self):
        return rng_next(&self.rng)

    def double(self):
        return rng_double(&self.rng)

    def float(self):
        return rng_float(&self.rng)


cdef class Sampler:
    """What one answer is drawn with: settings, random numbers, and what was said so far.

    params: SamplerParams. n_vocab: V. eog: end tokens, banned by ``ignore_eos``. suppress: tokens
    the model must never draw. heads: ``dry_heads`` of the breakers, needed when
    ``params.dries``. prompt: i32 ids that penalties and DRY count as said. n_probs: best tokens to
    report with each draw (``probs``), 0 = none. post_sampling: of what the chain left instead of
    the raw logits. matcher: a grammar's Matcher that every drawn token has to pass, with
    llama-server's order: the drawn token is asked about, and drawn again from those that may
    follow when it may not. Raises ParamError when nothing is left to draw.

    seed: the one in use, drawn here when the params leave it open.
    """

    cdef Chain chain
    cdef object _heads  # keeps the arrays alive
    cdef object _matcher
    cdef Workspace _own
    cdef readonly uint32_t seed

    def __cinit__(self, params, int n_vocab, **_):
        self.chain.vocab = n_vocab

    def __init__(
        self,
        params,
        int n_vocab,
        *,
        eog=(),
        suppress=(),
        heads=None,
        prompt=(),
        int n_probs=0,
        bint post_sampling=False,
        matcher=None,
    ):
        cdef Chain *c = &self.chain
        self.seed = secrets.randbelow(RANDOM_SEED) if params.seed == RANDOM_SEED else params.seed
        rng_seed(&c.draw_rng, self.seed)
        rng_seed(&c.xtc_rng, self.seed)
        c.temperature = params.temperature
        c.dynatemp_range = params.dynatemp_range
        c.dynatemp_exponent = params.dynatemp_exponent
        c.top_k = params.top_k
        c.min_keep = params.min_keep
        c.top_p = params.top_p
        c.min_p = params.min_p
        c.typical_p = params.typical_p
        c.top_n_sigma = params.top_n_sigma
        c.xtc_probability = params.xtc_probability
        c.xtc_threshold = params.xtc_threshold
        c.penalty_last_n = params.repeat_last_n
        c.repeat_penalty = params.repeat_penalty
        c.frequency_penalty = params.frequency_penalty
        c.presence_penalty = params.presence_penalty
        c.dry_multiplier = params.dry_multiplier
        c.dry_base = params.dry_base
        c.dry_allowed_length = params.dry_allowed_length
        c.dry_last_n = params.dry_penalty_last_n
        c.mirostat = params.mirostat
        c.mirostat_tau = params.mirostat_tau
        c.mirostat_eta = params.mirostat_eta
        c.mirostat_mu = 2 * c.mirostat_tau
        steps = list(params.samplers)
        c.penalises = params.penalises and "penalties" in steps and not c.mirostat
        c.dries = params.dries and "dry" in steps and not c.mirostat
        c.adaptive = "adaptive_p" in steps and not c.mirostat
        c.adaptive_target = params.adaptive_target
        c.adaptive_decay = params.adaptive_decay
        c.adaptive_weight = 1 / (1 - c.adaptive_decay)
        c.adaptive_sum = c.adaptive_target / (1 - c.adaptive_decay)
        c.greedy = _greedy(params) and not (n_probs and post_sampling)
        self._set_steps(steps)
        self._set_biases(params, n_vocab, eog, suppress)
        if c.penalises:
            c.counts = <int32_t *>_room(n_vocab, sizeof(int32_t))
        if c.dries:
            self._set_heads(heads)
        c.probs = max(0, min(n_probs, n_vocab))
        c.probs_after = post_sampling
        if c.probs:
            c.probs_ids = <int32_t *>_room(c.probs, sizeof(int32_t))
            c.probs_values = <float *>_room(c.probs, sizeof(float))
        if c.penalises or c.dries:
            self._accept_prompt(np.ascontiguousarray(prompt, np.int32))
        if matcher is not None:
            self._matcher = matcher
            c.constraint = <const Constraint *>PyCapsule_GetPointer(
                matcher.constraint, CONSTRAINT_CAPSULE
            )

    def __dealloc__(self):
        chain_free(&self.chain)

    cdef _set_steps(self, list steps):
        cdef Chain *c = &self.chain
        c.step_count = len(steps)
        c.steps = <int32_t *>_room(max(1, c.step_count), sizeof(int32_t))
        for i, name in enumerate(steps):
            c.steps[i] = NAMES.index(name)

    cdef _set_biases(self, params, int n_vocab, eog, suppress):
        cdef Chain *c = &self.chain
        biases = [(i, -math.inf) for i in suppress if 0 <= i < n_vocab]
        biases += [(i, bias) for i, bias in params.logit_bias if 0 <= i < n_vocab]
        if params.ignore_eos:
            biases += [(i, -math.inf) for i in eog if 0 <= i < n_vocab]
        banned = {i for i, bias in biases if bias == -math.inf}
        if len(banned) == n_vocab:
            raise ParamError("logit_bias", "Field 'logit_bias': every token is banned")
        c.bias_count = len(biases)
        c.bias_ids = <int32_t *>_room(max(1, c.bias_count), sizeof(int32_t))
        c.biases = <float *>_room(max(1, c.bias_count), sizeof(float))
        for at, (i, bias) in enumerate(biases):
            c.bias_ids[at] = i
            c.biases[at] = bias

    cdef _set_heads(self, heads):
        cdef const int32_t[::1] first
        cdef const int32_t[::1] start
        cdef const int32_t[::1] tails
        if heads is None or len(heads.first) != self.chain.vocab + 1:
            raise ValueError("dry_multiplier needs the vocabulary's dry_heads")
        first, start, tails = heads.first, heads.start, heads.tails
        self._heads = heads
        self.chain.heads.first = &first[0]
        self.chain.heads.start = &start[0]
        self.chain.heads.tails = &tails[0]

    cdef _accept_prompt(self, const int32_t[::1] prompt):
        for i in range(prompt.shape[0]):
            self.accept(prompt[i])

    cpdef accept(self, int32_t token):
        """Counts a token as said. ``sample`` and ``pick_many`` do it for those they draw.

        Raises GrammarError when the matcher does not let it follow.
        """
        cdef const Constraint *constraint = self.chain.constraint
        cdef int taken = 1
        if not 0 <= token < self.chain.vocab:
            raise ValueError(f"token {token}: the vocabulary has {self.chain.vocab}")
        if constraint != NULL:
            taken = constraint.accept(constraint.self, token)
        if taken < 0:
            raise gave_up(taken)
        if not taken:
            raise GrammarError(f"token {token} may not follow in the grammar")
        if not chain_accept(&self.chain, token):
            raise MemoryError

    def sample(self, const float[::1] logits):
        """Draws from one row (V,) and accepts the token. Raises NonFiniteLogits, and GrammarError
        when the matcher allows nothing that can be drawn."""
        if self._own is None:
            self._own = Workspace(self.chain.vocab)
        token = self._own.pick_many([self], logits[None, :])[0]
        if token < 0:
            raise refusal(token)
        return token

    @property
    def constraint_ms(self):
        """Milliseconds that the matcher took, over all draws."""
        return 1e3 * self.chain.constraint_seconds

    @property
    def redrawn(self):
        """Tokens that were drawn again because the matcher refused them."""
        return self.chain.redrawn

    def probs(self):
        """Probs of the last draw, None when none were asked for."""
        cdef Chain *c = &self.chain
        if not c.probs:
            return None
        top = tuple([(c.probs_ids[i], c.probs_values[i]) for i in range(c.probs_size)])
        return Probs(c.probs_drawn, top)


cdef class Workspace:
    """Scratch memory of draws over V tokens; one thread at a time."""

    cdef CWorkspace w
    cdef readonly int n_vocab

    def __cinit__(self, int n_vocab):
        self.n_vocab = n_vocab
        if n_vocab < 1:
            raise ValueError(f"a vocabulary of {n_vocab} tokens")
        if not workspace_init(&self.w, n_vocab):
            raise MemoryError

    def __dealloc__(self):
        workspace_free(&self.w)

    def pick_many(self, list samplers, scores, list rows=None, peaks=None):
        """Draws with samplers[i] from scores[i] and accepts; returns the tokens as ints.

        scores: (m, V) f32 logits, m = len(samplers). They are as before when this returns; meanwhile
        biases and penalties stand in an array that may be written to. rows: the row of each
        sampler instead, of any number. peaks: of all rows, as the op ``peaks`` makes them; None:
        they are looked for here. Raises NonFiniteLogits. A row whose matcher lets nothing follow
        gives a negative number instead of a token, for ``refusal``.
        """
        cdef const float[:, ::1] logits = scores
        cdef const float[:, ::1] best
        cdef int m = len(samplers), row, count = logits.shape[0]
        cdef bint writable = isinstance(scores, np.ndarray) and scores.flags.writeable
        cdef bint peaked = peaks is not None and maxima_of(self.n_vocab)
        cdef Sampler sampler
        if (count if rows is None else len(rows)) != m or (m and logits.shape[1] != self.n_vocab):
            raise ValueError(
                f"logits of shape ({logits.shape[0]}, {logits.shape[1]}) for {m} samplers "
                f"over {self.n_vocab} tokens"
            )
        if peaked:
            best = peaks
            if best.shape[0] != count or best.shape[1] != maxima_of(self.n_vocab):
                raise ValueError(
                    f"peaks of shape ({best.shape[0]}, {best.shape[1]}) for {count} rows of "
                    f"{maxima_of(self.n_vocab)}"
                )
        cdef Chain **chains = <Chain **>malloc((m + 1) * (sizeof(Chain *) + 2 * sizeof(int)))
        if chains == NULL:
            raise MemoryError
        cdef int *drawn = <int *>(chains + m)
        cdef int *at = drawn + m
        try:
            for row in range(m):
                sampler = <Sampler?>samplers[row]
                if sampler.chain.vocab != self.n_vocab:
                    raise ValueError(f"a sampler over {sampler.chain.vocab} tokens")
                chains[row] = &sampler.chain
                at[row] = row if rows is None else rows[row]
                if not 0 <= at[row] < count:
                    raise ValueError(f"row {at[row]} of {count} rows of logits")
            with nogil:
                for row in range(m):
                    drawn[row] = chain_pick(
                        chains[row], &self.w, &logits[at[row], 0],
                        <float *>&logits[at[row], 0] if writable else NULL,
                        &best[at[row], 0] if peaked else NULL,
                    )
            for row in range(m):
                if drawn[row] == PICK_NOT_FINITE:
                    raise _not_finite(at[row])
                if drawn[row] == PICK_NO_MEMORY:
                    raise MemoryError
            return [drawn[row] for row in range(m)]
        finally:
            free(chains)

    def score(self, const float[:, ::1] logits, const int32_t[::1] tokens, int n):
        """What known tokens competed with: a Probs for each row of raw logits, n best tokens each.

        logits: (m, V) f32. tokens: (m,), the one that followed each row. Raises NonFiniteLogits.
        """
        cdef int m = tokens.shape[0], row
        cdef bint sound = True
        if logits.shape[0] != m or (m and logits.shape[1] != self.n_vocab):
            raise ValueError(
                f"logits of shape ({logits.shape[0]}, {logits.shape[1]}) for {m} tokens "
                f"over {self.n_vocab}"
            )
        n = max(1, min(n, self.n_vocab))
        cdef int32_t[:, ::1] ids = np.empty((m + 1, n), np.int32)
        cdef float[:, ::1] values = np.empty((m + 1, n), np.float32)
        cdef float[::1] own = np.empty(m + 1, np.float32)
        for row in range(m):
            if not 0 <= tokens[row] < self.n_vocab:
                raise ValueError(f"token {tokens[row]}: the vocabulary has {self.n_vocab}")
        row = 0
        with nogil:
            while row < m and sound:
                sound = row_probs(
                    &self.w, &logits[row, 0], tokens[row], n, &ids[row, 0], &values[row, 0], &own[row]
                )
                row += sound
        if not sound:
            raise _not_finite(row)
        return [
            Probs(own[row], tuple([(ids[row, i], values[row, i]) for i in range(n)]))
            for row in range(m)
        ]


def _not_finite(int row):
    return NonFiniteLogits(
        f"row {row} of the logits holds NaN or infinity: the model's arithmetic broke down, or its "
        "file is damaged"
    )


def refusal(int code):
    """The error that a negative number of ``pick_many`` stands for."""
    if code < PICK_GAVE_UP:
        return gave_up(code - PICK_GAVE_UP)
    return GrammarError(
        "the grammar allows nothing here that can be drawn: no token spells what it wants, or "
        "logit_bias or ignore_eos bans those that do"
    )


cdef void *_room(size_t count, size_t size) except NULL:
    cdef void *memory = calloc(count, size)
    if memory == NULL:
        raise MemoryError
    return memory


def _greedy(params):
    """Whether the best logit wins whatever the filters between do.

    Not when a step may drop the best one, or one that changes logits comes after temperature.
    """
    if params.mirostat or params.temperature > 0 or params.dynatemp_range > 0:
        return False
    places = [NAMES.index(name) for name in params.samplers]
    in_order = places == sorted(places) and "temperature" in params.samplers
    drops = params.typical_p < 1 or (params.xtc_probability > 0 and params.xtc_threshold <= 0.5)
    return in_order and not drops and "adaptive_p" not in params.samplers
