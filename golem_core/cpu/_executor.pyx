# distutils: sources = golem_core/cpu/pool.c golem_core/cpu/run.c golem_core/cpu/load.c golem_core/cpu/pages.c golem_core/cpu/kernels/isa_portable.c golem_core/cpu/kernels/isa_avx2.c golem_core/cpu/kernels/isa_avx512.c golem_core/cpu/kernels/isa_amx.c golem_core/cpu/kernels/isa_amx_emulated.c golem_core/cpu/kernels/isa_neon.c golem_core/cpu/kernels/linear_types.c golem_core/cpu/kernels/repack.c golem_core/cpu/kernels/dequant.c golem_core/cpu/kernels/linear_portable.c golem_core/cpu/kernels/linear_avx2.c golem_core/cpu/kernels/linear_avx512.c golem_core/cpu/kernels/linear_avx512_kept.c golem_core/cpu/kernels/linear_amx.c golem_core/cpu/kernels/linear_amx_emulated.c golem_core/cpu/kernels/linear_neon.c
# distutils: include_dirs = golem_core/cpu
# distutils: libraries = m
"""The door to C: fills the structs of record.h from Python and runs a pass in one call.

Nothing here checks what it is given; golem_core.cpu.executor does, and holds on to the arrays whose
addresses are passed.
"""

import errno

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport getpid

from golem_core.cpu._record cimport (
    GOLEM_PROMPT_BLOCK, GOLEM_PROMPT_COLUMNS, GOLEM_ROUNDED, GOLEM_SPLIT, GOLEM_TOGETHER,
    GOLEM_COPY, GOLEM_ROWS, GOLEM_OVERLAY, GOLEM_PICK, GOLEM_ROUTE, GOLEM_COMBINE,
    GOLEM_RMS_NORM, GOLEM_LAYER_NORM, GOLEM_ROPE_TABLE, GOLEM_ROPE, GOLEM_STORE, GOLEM_QUANTISE,
    GOLEM_UNARY, GOLEM_GATE, GOLEM_ADD, GOLEM_MUL, GOLEM_FMA, GOLEM_CLAMP, GOLEM_SOFTCAP,
    GOLEM_SOFTMAX, GOLEM_TOP_K, GOLEM_REDUCE, GOLEM_POOL, GOLEM_LINEAR, GOLEM_EXPERTS,
    GOLEM_ATTEND, GOLEM_CONV1D, GOLEM_WINDOW, GOLEM_DELTA_RULE, GOLEM_HADAMARD, GOLEM_PEAKS, GOLEM_PACK, GOLEM_GEMM, GOLEM_CONV2D,
    GOLEM_SILU, GOLEM_SIGMOID, GOLEM_TANH, GOLEM_RELU, GOLEM_ELU, GOLEM_EXP,
    GOLEM_SOFTPLUS, GOLEM_GELU_TANH, GOLEM_GELU_ERF, GOLEM_GELU_QUICK, atomic_int,
    golem_collapse, GOLEM_SET_COUNT, golem_extent, golem_isa, golem_isa_of, golem_load, golem_load_all,
    golem_matrix, golem_operand, golem_pass, golem_pool, golem_pool_free, golem_pool_new,
    golem_pool_owner, golem_q8, golem_record, golem_ring, golem_run, golem_runs, golem_segment, golem_set_names, golem_table,
    golem_touch, golem_type_index, golem_types, GOLEM_AMX_WRONG, golem_amx_state, golem_prompt_records,
)


SPLIT = GOLEM_SPLIT
TOGETHER, ROUNDED = GOLEM_TOGETHER, GOLEM_ROUNDED  # what attend may do with prompt columns
COLUMNS = GOLEM_PROMPT_COLUMNS  # that a product kernel takes at most
PROMPT_BLOCK = GOLEM_PROMPT_BLOCK  # values of a prompt column that share a base
Q8_BYTES = sizeof(golem_q8)  # of 32 activations with their scales and sums
SETS = tuple(golem_set_names[i].decode() for i in range(GOLEM_SET_COUNT))
EMULATED = [set for set, name in enumerate(SETS) if name.endswith("_emulated")]
KINDS = {
    "copy": GOLEM_COPY, "rows": GOLEM_ROWS, "overlay": GOLEM_OVERLAY, "pick": GOLEM_PICK,
    "route": GOLEM_ROUTE, "combine": GOLEM_COMBINE, "rms_norm": GOLEM_RMS_NORM, "layer_norm":
    GOLEM_LAYER_NORM, "rope_table": GOLEM_ROPE_TABLE, "rope": GOLEM_ROPE, "store": GOLEM_STORE,
    "quantise": GOLEM_QUANTISE, "unary": GOLEM_UNARY, "gate": GOLEM_GATE, "add": GOLEM_ADD,
    "mul": GOLEM_MUL, "fma": GOLEM_FMA, "clamp": GOLEM_CLAMP, "softcap": GOLEM_SOFTCAP,
    "softmax": GOLEM_SOFTMAX, "top_k": GOLEM_TOP_K, "reduce": GOLEM_REDUCE, "pool": GOLEM_POOL,
    "linear": GOLEM_LINEAR, "experts": GOLEM_EXPERTS, "attend": GOLEM_ATTEND,
    "conv1d": GOLEM_CONV1D, "window": GOLEM_WINDOW, "delta_rule": GOLEM_DELTA_RULE,
    "hadamard": GOLEM_HADAMARD, "peaks": GOLEM_PEAKS,
    "pack": GOLEM_PACK, "gemm": GOLEM_GEMM,
    "conv2d": GOLEM_CONV2D,
}
UNARY_KINDS = {
    "silu": GOLEM_SILU, "sigmoid": GOLEM_SIGMOID, "tanh": GOLEM_TANH, "relu": GOLEM_RELU, "elu":
    GOLEM_ELU, "exp": GOLEM_EXP, "softplus": GOLEM_SOFTPLUS, "gelu_tanh": GOLEM_GELU_TANH,
    "gelu_erf": GOLEM_GELU_ERF, "gelu_quick": GOLEM_GELU_QUICK,
}


def supported():
    """Names of the instruction sets this processor runs, the best last."""
    return tuple(name for set, name in enumerate(SETS) if golem_runs(set) and set not in EMULATED)


def emulated():
    """Sets that this processor runs without having their instructions: for tests, and slow."""
    return tuple(SETS[set] for set in EMULATED if golem_runs(set))


def amx_wrong():
    """Whether processor and system admit AMX, but a product came out wrong or faulted."""
    return golem_amx_state() == GOLEM_AMX_WRONG


def prompt_records(str set):
    """Records of Q8_BYTES that a prompt column has for 32 values."""
    return golem_prompt_records(golem_isa_of(SETS.index(set)).linear)


def group_bytes(int type_id, int width):
    """Bytes of a repacked group of 16 rows of that width."""
    return golem_types[golem_type_index(type_id)].group_bytes(width)


def knows(int type_id):
    """Whether there are kernels for a block type."""
    return golem_type_index(type_id) >= 0


def collapse(address, int64_t size):
    """Moves what lies at an address to one huge page of that size; False where there is none."""
    cdef void *page = <void *><uintptr_t>address
    cdef int done
    with nogil:
        done = golem_collapse(page, size)
    return done != 0


def attend_scratch(str set, int d, int dv, int share, int rels):
    """Bytes a worker needs to attend."""
    return golem_isa_of(SETS.index(set)).attend_scratch(d, dv, share, rels)


def attend_part_bytes(str set, int dv, int share):
    """Bytes of the result of one chunk of keys."""
    return golem_isa_of(SETS.index(set)).attend_part_bytes(dv, share)


def panel(str set):
    """Columns side by side in a panel of gemm; whether it multiplies BF16 by BF16; whether
    linear takes two groups of float weights at once."""
    cdef const golem_isa *isa = golem_isa_of(SETS.index(set))
    return isa.panel, isa.gemm_pairs() != 0, isa.two_groups != 0


def decoder_sizes(const int32_t[:, ::1] runs, const int32_t[::1] tokens, const int32_t[::1] outputs,
                  int slots, int context, int vocabulary, int most_columns, int most_outputs):
    """(n, m) of a decoder's pass, or None where golem_core.graph.binding would refuse it."""
    cdef Py_ssize_t i, j, n = tokens.shape[0], m = outputs.shape[0]
    cdef int64_t first = 0, role = 0
    if runs.shape[1] != 5 or runs.shape[0] == 0 or runs.shape[0] > slots:
        return None
    if n > most_columns or m > most_outputs:
        return None
    for i in range(runs.shape[0]):
        if runs[i, 0] < 0 or runs[i, 0] >= slots or runs[i, 1] != first or runs[i, 2] < 1:
            return None
        if runs[i, 3] < 0 or <int64_t>runs[i, 3] + runs[i, 2] > context:
            return None
        if runs[i, 4] < role or runs[i, 4] > 1:
            return None
        for j in range(i):
            if runs[j, 0] == runs[i, 0]:
                return None
        role = runs[i, 4]
        first += runs[i, 2]
    if first != n:
        return None
    for i in range(n):
        if tokens[i] < 0 or tokens[i] >= vocabulary:
            return None
    for i in range(m):
        if outputs[i] < 0 or outputs[i] >= n:
            return None
    return n, m


cdef class Pool:
    """Threads that run passes. They start here and stop in close()."""

    cdef golem_pool *pool
    cdef readonly int threads

    def __cinit__(self, int threads, int spin, const int[::1] core):
        """spin: looks before a waiting thread sleeps. core: the core of every processor."""
        with nogil:
            self.pool = golem_pool_new(threads, spin, &core[0], <int>core.shape[0])
        if self.pool == NULL:
            raise OSError(errno.EAGAIN, f"{threads} threads to compute on could not be started; "
                          "-threads sets fewer, ulimit -u or the container's limit more")
        self.threads = threads

    cdef golem_pool *checked(self) except NULL:
        if self.pool == NULL:
            raise RuntimeError("golem: the executor is closed")
        if golem_pool_owner(self.pool) != getpid():
            raise RuntimeError(
                f"golem: thread pool started in process {golem_pool_owner(self.pool)} used in "
                f"process {getpid()} (forked after start); start the engine in gunicorn's "
                "post_worker_init")
        return self.pool

    def check(self):
        """Raises RuntimeError where the threads are not to be had: closed, or another process."""
        self.checked()

    def load(self, list jobs):
        """Repacks (source, row bytes, expert bytes, target, group bytes, type id, experts, out, in,
        release)."""
        cdef golem_pool *pool = self.checked()
        cdef int count = len(jobs), i
        cdef golem_load *loads = <golem_load *>calloc(max(count, 1), sizeof(golem_load))
        if loads == NULL:
            raise MemoryError()
        for i, job in enumerate(jobs):
            (source, row_bytes, expert_bytes, target, size, type_id, experts, out, width,
             release) = job
            loads[i].source = <const uint8_t *><uintptr_t>source
            loads[i].row_bytes = row_bytes
            loads[i].expert_bytes = expert_bytes
            loads[i].groups = <uint8_t *><uintptr_t>target
            loads[i].group_bytes = size
            loads[i].type = golem_type_index(type_id)
            loads[i].experts = experts
            loads[i].out = out
            loads[i].width = width
            loads[i].release = release
        with nogil:
            golem_load_all(pool, loads, count)
        free(loads)

    def touch(self, address, int64_t count, int64_t size):
        """Takes that many pages from the system; -> seconds all threads spent on it."""
        cdef golem_pool *pool = self.checked()
        cdef uint8_t *pages = <uint8_t *><uintptr_t>address
        cdef double seconds
        with nogil:
            seconds = golem_touch(pool, pages, count, size)
        return seconds

    def close(self):
        cdef golem_pool *pool = self.pool
        self.pool = NULL
        with nogil:
            golem_pool_free(pool)

    def __dealloc__(self):
        golem_pool_free(self.pool)


cdef class Code:
    """A compiled plan: records, segments, tables, extents, and base pointers per arena."""

    cdef golem_record *records
    cdef golem_segment *segments
    cdef golem_table *tables
    cdef golem_extent *extents
    cdef int64_t *sizes
    cdef int64_t *drawn            # of every extent, the rows that are drawn
    cdef char **bases
    cdef atomic_int *next
    cdef atomic_int *finished
    cdef double *profile           # seconds of every record, or NULL
    cdef int32_t *columns          # slot, index and run of every column
    cdef int record_count, segment_count, table_count, extent_count, slot_count, most
    cdef int segments_used, tables_used
    cdef char *scratch
    cdef int64_t scratch_bytes, local_bytes
    cdef const golem_isa *isa
    cdef Pool pool
    cdef int64_t symbols[16]
    cdef int32_t *index_copy[8]
    cdef int index_arena[8]
    cdef int index_axes[8]         # times each index is written; 0: -1 is, once a column
    cdef int index_count
    cdef int32_t *tokens[2]
    cdef int32_t *outputs[2]
    cdef int symbol_n, symbol_m
    cdef int symbol_columns        # -1: none
    cdef bint keeps_states
    cdef int *weight_extent
    cdef long long *weight_size
    cdef int weight_count
    cdef bint kept                 # weights lie in the last cache from pass to pass
    cdef int *cancelled            # polled now and then, NULL where a pass must run to its end
    cdef readonly double seconds   # inside C, of the last pass
    cdef readonly long long weight_bytes   # that the last pass gave its kernels to read

    def __cinit__(self, Pool pool, str set, int records, int segments, int tables, int extents,
                  int slots, int arenas, int columns):
        self.pool = pool
        self.isa = golem_isa_of(SETS.index(set))
        self.record_count = records
        self.segment_count = segments
        self.table_count = tables
        self.extent_count = extents
        self.slot_count = slots
        self.most = columns
        self.records = <golem_record *>calloc(max(records, 1), sizeof(golem_record))
        self.segments = <golem_segment *>calloc(max(segments, 1), sizeof(golem_segment))
        self.tables = <golem_table *>calloc(max(tables, 1), sizeof(golem_table))
        self.extents = <golem_extent *>calloc(max(extents, 1), sizeof(golem_extent))
        self.sizes = <int64_t *>calloc(max(extents, 1), sizeof(int64_t))
        self.drawn = <int64_t *>calloc(max(extents, 1), sizeof(int64_t))
        self.bases = <char **>calloc(max(slots * arenas, 1), sizeof(char *))
        self.next = <atomic_int *>calloc(max(records, 1), 64)
        self.finished = <atomic_int *>calloc(GOLEM_SPLIT * pool.threads, 64)
        self.weight_extent = <int *>calloc(max(extents, 1), sizeof(int))
        self.weight_size = <long long *>calloc(max(extents, 1), sizeof(long long))
        self.columns = <int32_t *>calloc(3 * max(columns, 1), sizeof(int32_t))
        if (self.records == NULL or self.segments == NULL or self.tables == NULL
                or self.extents == NULL or self.sizes == NULL or self.drawn == NULL or self.bases == NULL
                or self.next == NULL or self.finished == NULL or self.columns == NULL
                or self.weight_extent == NULL or self.weight_size == NULL):
            raise MemoryError()

    def __dealloc__(self):
        free(self.records)
        free(self.segments)
        free(self.tables)
        free(self.extents)
        free(self.sizes)
        free(self.drawn)
        free(self.bases)
        free(self.next)
        free(self.finished)
        free(self.columns)
        free(self.weight_extent)
        free(self.weight_size)
        free(self.profile)

    def set_scratch(self, uintptr_t address, int64_t each, int64_t local):
        """A worker's scratch is ``each`` bytes, the first ``local`` of them for chains."""
        self.scratch = <char *>address
        self.scratch_bytes = each
        self.local_bytes = local

    def set_roles(self, int n, bint keeps_states):
        """Which symbol counts a pass's columns, -1: none.

        Rows counted without it are what a pass scores: drawn where the program keeps states, and
        prompt rows where it keeps none, as its columns are.
        """
        self.symbol_columns = n
        self.keeps_states = keeps_states

    def set_base(self, int arena, int slot, uintptr_t address):
        self.bases[arena * self.slot_count + slot] = <char *>address

    def copy_index(self, int arena, uintptr_t address, int axes):
        """Has decoders' passes write the columns' indices there when they run in that arena.

        axes: how often each is written, side by side; 0: a column gets -1 instead.
        """
        if self.index_count == 8:
            raise ValueError("a pass copies the index to eight places at most")
        self.index_arena[self.index_count] = arena
        self.index_axes[self.index_count] = axes
        self.index_copy[self.index_count] = <int32_t *>address
        self.index_count += 1

    def set_decoder(self, int arena, int n, int m, uintptr_t tokens, uintptr_t outputs):
        """For run_decoder: which symbols n and m are, and where its inputs go (0: unused)."""
        if arena > 1:
            raise ValueError("a plan has two arenas at most")
        self.symbol_n = n
        self.symbol_m = m
        self.tokens[arena] = <int32_t *>tokens
        self.outputs[arena] = <int32_t *>outputs

    def run_decoder(self, int arena, int n, int m, const int32_t[:, ::1] runs,
                    const int32_t[::1] tokens, const int32_t[::1] outputs):
        """One pass of a decoder over inputs that decoder_sizes found right."""
        memset(self.symbols, 0, sizeof(self.symbols))
        self.symbols[self.symbol_n] = n
        self.symbols[self.symbol_m] = m
        if n and self.tokens[arena] != NULL:
            memcpy(self.tokens[arena], &tokens[0], n * sizeof(int32_t))
        if m and self.outputs[arena] != NULL:
            memcpy(self.outputs[arena], &outputs[0], m * sizeof(int32_t))
        return self.run_bound(arena, runs, True, 0, 0) < 0

    def count_weights(self, int extent, long long size):
        """Weights of that many bytes are read by every pass in which the extent is not 0, and no
        kernel counts them."""
        self.weight_extent[self.weight_count] = extent
        self.weight_size[self.weight_count] = size
        self.weight_count += 1

    def size(self, int extent):
        """The extent in the last pass."""
        return self.sizes[extent]

    def set_extent(self, int number, list terms, int add, int divide):
        """ceil((sum of factor · symbol + add) / divide); terms: (symbol, factor)."""
        cdef golem_extent *e = &self.extents[number]
        e.terms = len(terms)
        for i, (symbol, factor) in enumerate(terms):
            e.symbol[i] = symbol
            e.factor[i] = factor
        e.add = add
        e.divide = divide

    cdef void operand(self, golem_operand *to, given) except *:
        """(slot, offset, row, span, step, extent of rows before, replica) or None."""
        memset(to, 0, sizeof(golem_operand))
        to.slot = -1
        to.rows_before = -1
        if given is not None:
            to.slot, to.offset, to.row, to.span, to.step, to.rows_before, to.replica = given

    cdef void matrix(self, golem_matrix *to, given) except *:
        """(groups, group bytes, expert bytes, type id, scales, scale, bias) or None."""
        if given is None:
            return
        groups, size, expert, type_id, scales, scale, bias = given
        to.groups = <const uint8_t *><uintptr_t>groups
        to.group_bytes = size
        to.expert_bytes = expert
        to.type = golem_type_index(type_id)
        to.scales = scales
        to.scale = <const float *><uintptr_t>scale
        to.bias = <const float *><uintptr_t>bias

    def set_record(self, int number, str kind, int flags, int chain, int extent, int spans,
                   int width, list ins, list outs, floats, ints, list data):
        """data: addresses of constant arrays."""
        cdef golem_record *r = &self.records[number]
        cdef int i
        memset(r, 0, sizeof(golem_record))
        r.kind = KINDS[kind]
        r.flags = flags
        r.chain = chain
        r.extent = extent
        r.spans = spans
        r.width = width
        for i in range(6):
            self.operand(&r.ins[i], ins[i] if i < len(ins) else None)
        for i in range(3):
            self.operand(&r.out[i], outs[i] if i < len(outs) else None)
        for i in range(len(floats)):
            r.f[i] = floats[i]
        for i in range(len(ints)):
            r.i[i] = ints[i]
        for i in range(len(data)):
            r.data[i] = <const void *><uintptr_t>data[i]

    def set_ring(self, int number, uintptr_t k, uintptr_t v, int64_t slot_bytes,
                 int64_t block_bytes, int capacity, int dk, int dv, int rate, tuple types,
                 tuple turns):
        cdef golem_ring *ring = &self.records[number].ring
        ring.k = <char *>k
        ring.v = <char *>v
        ring.type_k, ring.type_v = types
        ring.turn_k, ring.turn_v = turns
        ring.slot_bytes = slot_bytes
        ring.block_bytes = block_bytes
        ring.capacity = capacity
        ring.dk = dk
        ring.dv = dv
        ring.rate = rate

    def set_state(self, int number, uintptr_t base, int64_t floats):
        """A recurrent state: the first slot's, and how many floats each slot has."""
        self.records[number].state.base = <float *>base
        self.records[number].state.floats = floats

    def set_tables(self, int number, list tables):
        """(rows, row bytes, rows' count, type id) of each table of a record."""
        cdef golem_table *t
        self.records[number].data[0] = &self.tables[self.tables_used]
        for rows, row_bytes, count, type_id in tables:
            t = &self.tables[self.tables_used]
            t.rows = <const uint8_t *><uintptr_t>rows
            t.row_bytes = row_bytes
            t.count = count
            t.type = golem_type_index(type_id)
            self.tables_used += 1

    def add_segment(self, int number, a, b, int width, int out, int chunk, int gate,
                    list finishes, store, int quantised):
        """One product of a record; its segments come one after the other."""
        cdef golem_segment *s = &self.segments[self.segments_used]
        cdef golem_record *r = &self.records[number]
        cdef int i
        if r.segments == 0:
            r.segment = s
        self.segments_used += 1
        r.segments += 1
        self.matrix(&s.a, a)
        self.matrix(&s.b, b)
        s.width = width
        s.out = out
        s.groups = (out + 15) // 16
        s.chunk = chunk
        s.units = (s.groups + chunk - 1) // chunk
        s.gate = gate
        s.quantised = quantised
        self.operand(&s.store, store)
        s.finishes = len(finishes)
        for i, (kind, unary, low, high, operand) in enumerate(finishes):
            s.finish[i].kind = KINDS[kind]
            s.finish[i].unary = unary
            s.finish[i].a = low
            s.finish[i].b = high
            self.operand(&s.finish[i].operand, operand)

    def set_cancel(self, const int[::1] flag):
        """Passes stop soon after the flag is set. The caller keeps it alive."""
        self.cancelled = <int *>&flag[0]

    def keep_weights(self):
        """All weights of a pass fit into the last cache: they are read so that they stay there."""
        self.kept = True

    def start_profile(self):
        """From now on every pass adds up where its time goes."""
        if self.profile == NULL:
            self.profile = <double *>calloc(max(self.record_count, 1), sizeof(double))

    def profiled(self):
        """Seconds of every record since start_profile; a chain's are its first record's."""
        if self.profile == NULL:
            return [0.0] * self.record_count
        return [self.profile[i] for i in range(self.record_count)]

    cdef int64_t rows_of(self, const golem_extent *e, int64_t columns) noexcept nogil:
        """An extent in a pass of that many columns."""
        cdef int64_t total = e.add
        cdef int j
        for j in range(e.terms):
            total += e.factor[j] * (columns if e.symbol[j] == self.symbol_columns
                                    else self.symbols[e.symbol[j]])
        return (total + e.divide - 1) // e.divide

    cdef bint counts_columns(self, const golem_extent *e) noexcept nogil:
        cdef int j
        for j in range(e.terms):
            if e.symbol[j] == self.symbol_columns:
                return True
        return False

    def run(self, int arena, tuple symbols, const int32_t[:, ::1] runs):
        """One pass. symbols: their values. False when it was cancelled."""
        cdef int i
        for i in range(len(symbols)):
            self.symbols[i] = symbols[i]
        return self.run_bound(arena, runs, False, 0, 0) < 0

    def run_on(self, int arena, tuple symbols, const int32_t[:, ::1] runs, int first,
               double seconds):
        """A pass from the record ``first`` on, for about so many seconds; 0: to its end.

        Returns the record to go on from, -1 at the end.
        """
        cdef int i
        cdef timespec t
        for i in range(len(symbols)):
            self.symbols[i] = symbols[i]
        clock_gettime(CLOCK_MONOTONIC, &t)
        return self.run_bound(arena, runs, False, first,
                              seconds and t.tv_sec + 1e-9 * t.tv_nsec + seconds)

    cdef int run_bound(self, int arena, const int32_t[:, ::1] runs, bint follow, int first,
                       double until) except -2:
        cdef golem_pool *pool = self.pool.checked()
        cdef golem_pass p
        cdef timespec before, after
        cdef int i, j, axes, stopped
        cdef int64_t total
        cdef golem_extent *e
        for i in range(self.extent_count):
            e = &self.extents[i]
            total = e.add
            for j in range(e.terms):
                total += e.factor[j] * self.symbols[e.symbol[j]]
            self.sizes[i] = (total + e.divide - 1) // e.divide
        memset(&p, 0, sizeof(p))
        p.base = self.bases + arena * self.slot_count
        p.extents = self.sizes
        p.drawn_rows = self.drawn
        p.run_count = runs.shape[0]
        p.runs = &runs[0, 0] if p.run_count else NULL
        p.slot = self.columns
        p.index = self.columns + self.most
        p.run = self.columns + 2 * self.most
        for i in range(p.run_count):
            for j in range(runs[i, 2]):
                self.columns[p.columns] = runs[i, 0]
                self.columns[self.most + p.columns] = runs[i, 3] + j
                self.columns[2 * self.most + p.columns] = i
                p.columns += 1
            if runs[i, 4] == 0:
                p.drawn = p.columns
        for i in range(self.extent_count):
            e = &self.extents[i]
            self.sizes[i] = self.rows_of(
                e, self.symbols[self.symbol_columns] if self.symbol_columns >= 0 else 0)
            if not self.counts_columns(e):
                self.drawn[i] = self.sizes[i] if self.keeps_states else 0
            elif self.keeps_states and not self.isa.prompts_apart:
                self.drawn[i] = self.sizes[i]
            else:
                self.drawn[i] = min(self.rows_of(e, p.drawn), self.sizes[i]) if p.drawn else 0
        if follow:
            for i in range(self.index_count):
                if self.index_arena[i] != arena:
                    continue
                axes = self.index_axes[i]
                if axes == 1:
                    memcpy(self.index_copy[i], p.index, p.columns * sizeof(int32_t))
                elif axes == 0:
                    memset(self.index_copy[i], 0xff, p.columns * sizeof(int32_t))
                else:
                    for j in range(p.columns * axes):
                        self.index_copy[i][j] = p.index[j // axes]
        p.threads = self.pool.threads
        p.pool = pool
        p.next = self.next
        p.finished = self.finished
        p.isa = self.isa
        p.linear = self.isa.linear
        if self.kept and self.isa.linear.kept != NULL:
            p.linear = self.isa.linear.kept
        p.profile = self.profile
        p.cancel = <const atomic_int *>self.cancelled
        with nogil:
            clock_gettime(CLOCK_MONOTONIC, &before)
            stopped = golem_run(self.records, self.record_count, first, until, &p, self.scratch,
                                self.scratch_bytes, self.local_bytes)
            clock_gettime(CLOCK_MONOTONIC, &after)
        self.seconds = (after.tv_sec - before.tv_sec) + 1e-9 * (after.tv_nsec - before.tv_nsec)
        self.weight_bytes = p.weight_bytes + (self.weight_bytes if first else 0)
        for i in range(0 if first else self.weight_count):
            if self.sizes[self.weight_extent[i]]:
                self.weight_bytes += self.weight_size[i]
        return stopped
