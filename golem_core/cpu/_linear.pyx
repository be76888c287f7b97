# distutils: sources = golem_core/cpu/kernels/linear_types.c golem_core/cpu/kernels/repack.c golem_core/cpu/kernels/dequant.c golem_core/cpu/kernels/linear_portable.c golem_core/cpu/kernels/linear_avx2.c golem_core/cpu/kernels/linear_avx512.c golem_core/cpu/kernels/linear_avx512_kept.c golem_core/cpu/kernels/linear_amx.c golem_core/cpu/kernels/linear_amx_emulated.c golem_core/cpu/kernels/linear_neon.c golem_core/cpu/kernels/linear_read.c
# distutils: libraries = m
"""The linear kernels one by one, for tests and benchmarks; the executor calls them from C.

Arrays are plain contiguous buffers; shapes are checked here, so that no call can leave them.
"""

from libc.stddef cimport ptrdiff_t, size_t
from libc.stdint cimport int32_t, int64_t, int8_t, uint8_t, uint64_t


cdef extern from "kernels/linear.h" nogil:
    enum: GOLEM_GROUP
    enum: GOLEM_ACT_BLOCK
    enum: GOLEM_ACT_Q8
    enum: GOLEM_PROMPT_COLUMNS

    ctypedef struct golem_q8:
        float d[2]
        float s
        float base
        int32_t minus[2]
        int8_t q[32]

    ctypedef struct golem_act:
        const float *x
        ptrdiff_t x_stride
        const int32_t *rows
        const golem_q8 *q
        int n
        bint precise

    ctypedef void (*golem_group_fn)(
        const uint8_t *, int, const golem_act *, int, int, float *) noexcept nogil

    ctypedef void (*golem_pair_fn)(
        const uint8_t *, const uint8_t *, int, const golem_act *, int, int, float *,
        float *) noexcept nogil

    ctypedef struct golem_type:
        int id
        const char *name
        int block
        int bytes
        int act
        size_t (*group_bytes)(int) noexcept nogil
        void (*repack)(const uint8_t *, size_t, int, int, uint8_t *) noexcept nogil
        void (*dequant_row)(const uint8_t *, int, float *) noexcept nogil

    ctypedef struct golem_linear_isa:
        const char *name
        const golem_group_fn *dot
        void (*quantise_row)(const float *, int, golem_q8 *, int) noexcept nogil
        const golem_pair_fn *pair
        void (*quantise_prompt)(const float *, int, golem_q8 *, int) noexcept nogil
        void (*quantise_precise)(const float *, int, golem_q8 *, int) noexcept nogil
        const golem_pair_fn *prompt
        int prompt_records

    const golem_type *golem_types
    int golem_type_count
    int golem_type_index(int)
    int golem_amx_computes()
    int golem_prompt_records(const golem_linear_isa *)


cdef extern from *:
    """
    #include "kernels/linear.h"
    #include "kernels/linear_read.h"

    static const golem_linear_isa *linear_isa(int set) {
    #define LINEAR_OF(NAME) &golem_linear_##NAME,
        static const golem_linear_isa *const isas[] = {GOLEM_SETS(LINEAR_OF)};
        return isas[set];
    }
    """
    enum: GOLEM_SET_COUNT
    const char *const *golem_set_names
    int golem_runs(int) noexcept nogil
    const golem_linear_isa *linear_isa(int) noexcept nogil
    uint64_t golem_read(const uint8_t *, size_t) noexcept nogil
    int64_t golem_multiply(int64_t) noexcept nogil


ISAS = tuple(golem_set_names[i].decode() for i in range(GOLEM_SET_COUNT))
Q8_BYTES = sizeof(golem_q8)
PROMPT_COLUMNS = GOLEM_PROMPT_COLUMNS  # that a call takes at most, how="prompt"


def isas():
    """Names of the instruction sets this processor can run, slowest first; not emulated ones."""
    return tuple(name for name in ISAS if runs(name) and not name.endswith("_emulated"))


def amx_computes():
    """Whether AMX's instructions give two known products here; False where they fault."""
    return golem_amx_computes() != 0


def runs(str isa):
    """Whether this processor can run a set."""
    return isa in ISAS and golem_runs(ISAS.index(isa)) != 0


def types():
    """``(id, name, weights, bytes, takes 8-bit activations)`` of every type, in table order."""
    return [
        (
            golem_types[i].id,
            golem_types[i].name.decode(),
            golem_types[i].block,
            golem_types[i].bytes,
            golem_types[i].act == GOLEM_ACT_Q8,
        )
        for i in range(golem_type_count)
    ]


cdef const golem_linear_isa *_isa(str name) except NULL:
    if not runs(name):
        raise ValueError(f"this processor cannot run {name!r}; it has {', '.join(isas())}")
    return linear_isa(ISAS.index(name))


cdef int _index(int type) except -1:
    cdef int index = golem_type_index(type)
    if index < 0:
        raise ValueError(f"no kernel for block type {type}")
    return index


cdef size_t _row_bytes(const golem_type *type, int n) except 0:
    if n < 1 or n % type.block:
        raise ValueError(f"{type.name.decode()} rows hold a multiple of {type.block}, not {n}")
    return <size_t>(n // type.block) * type.bytes


def group_bytes(int type, int n):
    """Bytes of one group of 16 rows of ``n`` weights."""
    cdef const golem_type *t = &golem_types[_index(type)]
    _row_bytes(t, n)
    return t.group_bytes(n)


def repack(int type, const uint8_t[:, ::1] rows, int n, uint8_t[::1] out):
    """File rows u8 ``(rows, row bytes)`` of ``n`` weights -> groups in ``out`` (64-byte aligned)."""
    cdef const golem_type *t = &golem_types[_index(type)]
    cdef size_t row_bytes = _row_bytes(t, n), size = t.group_bytes(n)
    cdef Py_ssize_t count = rows.shape[0], at = 0
    if <size_t>rows.shape[1] != row_bytes or count < 1:
        raise ValueError(f"rows of {n} weights take {row_bytes} bytes, not {rows.shape[1]}")
    if <size_t>out.shape[0] != size * ((count + GOLEM_GROUP - 1) // GOLEM_GROUP):
        raise ValueError(f"{count} rows take groups of {size} bytes; out has {out.shape[0]}")
    with nogil:
        while at < count:
            t.repack(&rows[at, 0], row_bytes, <int>min(GOLEM_GROUP, count - at), n,
                     &out[(at // GOLEM_GROUP) * size])
            at += GOLEM_GROUP


def dequantise(int type, const uint8_t[:, ::1] rows, float[:, ::1] out):
    """File rows u8 ``(rows, row bytes)`` -> f32 ``(rows, n)``."""
    cdef const golem_type *t = &golem_types[_index(type)]
    cdef Py_ssize_t r
    if rows.shape[0] != out.shape[0] or <size_t>rows.shape[1] != _row_bytes(t, <int>out.shape[1]):
        raise ValueError("rows and out do not belong together")
    with nogil:
        for r in range(rows.shape[0]):
            t.dequant_row(&rows[r, 0], <int>out.shape[1], &out[r, 0])


def prompt_records(str isa):
    """Records that a prompt column has for 32 values."""
    return golem_prompt_records(_isa(isa))


def has_precise_prompts(str isa):
    """Whether prompt columns of products that a softmax follows have records of their own."""
    return _isa(isa).quantise_precise != NULL


cdef int _records(const golem_linear_isa *isa, str how) except 0:
    """Records of a column for 32 values."""
    if how == "precise":
        if isa.quantise_precise == NULL:
            raise ValueError(f"{isa.name.decode()} has no precise prompt columns")
        return 2
    return golem_prompt_records(isa) if how == "prompt" else 1


def quantise(str isa, const float[:, ::1] x, uint8_t[::1] out, str how="drawn"):
    """f32 ``(n, in)`` -> records ``(in / 32, n)`` of ``Q8_BYTES``.

    how: "drawn"; "prompt", columns that have ``prompt_records`` of them side by side; "precise",
    prompt columns that have a second one each, behind the first ones of all.
    """
    cdef const golem_linear_isa *set_ = _isa(isa)
    cdef Py_ssize_t n = x.shape[0], width = x.shape[1], c
    cdef int wide = _records(set_, how)
    cdef bint prompt = how == "prompt", precise = how == "precise"
    if width % GOLEM_ACT_BLOCK or out.shape[0] != n * wide * (width // GOLEM_ACT_BLOCK) * Q8_BYTES:
        raise ValueError(f"{n} columns of {width} do not fit {out.shape[0]} bytes")
    with nogil:
        for c in range(n):
            if precise:
                set_.quantise_precise(&x[c, 0], <int>width, <golem_q8 *>&out[0] + c, <int>n * wide)
            elif prompt:
                set_.quantise_prompt(&x[c, 0], <int>width, <golem_q8 *>&out[0] + c * wide,
                                     <int>n * wide)
            else:
                set_.quantise_row(&x[c, 0], <int>width, <golem_q8 *>&out[0] + c, <int>n)


def dot(str isa, int type, const uint8_t[::1] groups, int width, columns, int c0, int nc,
        float[:, :, ::1] out, str how="one"):
    """Every group times columns ``c0 .. c0 + nc - 1``: f32 ``(groups, nc, 16)`` in ``out``.

    how: "one" group a call; "pairs", two where the instruction set has such kernels; "prompt" or
    "precise", by the kernels of prompt columns.

    ``columns`` is f32 ``(n, width)`` for float types, else the records of ``quantise`` as
    u8 ``(width / 32, n, Q8_BYTES)``.
    """
    cdef const golem_linear_isa *set_ = _isa(isa)
    cdef int index = _index(type)
    cdef const golem_type *t = &golem_types[index]
    cdef size_t size = t.group_bytes(width)
    cdef golem_act act
    cdef const float[:, ::1] x
    cdef const uint8_t[:, :, ::1] q
    cdef Py_ssize_t g = 0
    cdef bint pairs = how == "pairs", precise = how == "precise", prompt = how == "prompt", two
    cdef int wide = _records(set_, how) if t.act == GOLEM_ACT_Q8 else 1
    _row_bytes(t, width)
    if t.act == GOLEM_ACT_Q8:
        q = columns
        if q.shape[0] != width // GOLEM_ACT_BLOCK or q.shape[2] != Q8_BYTES:
            raise ValueError(f"records of shape {columns.shape} are no columns of {width}")
        act.q = <const golem_q8 *>&q[0, 0, 0]
        act.n = <int>q.shape[1]
    else:
        x = columns
        if x.shape[1] != width:
            raise ValueError(f"columns have {x.shape[1]} values, not {width}")
        act.x = &x[0, 0]
        act.x_stride = width
        act.rows = NULL
        act.n = <int>x.shape[0]
    act.precise = precise
    prompt = prompt or precise
    if prompt and nc > GOLEM_PROMPT_COLUMNS:
        raise ValueError(f"{nc} prompt columns; a call takes {GOLEM_PROMPT_COLUMNS}")
    if c0 < 0 or nc < 1 or (c0 + nc) * wide > act.n:
        raise ValueError(f"columns {c0} .. {c0 + nc - 1} of {act.n // wide}")
    if <size_t>groups.shape[0] != size * out.shape[0] or out.shape[1] != nc or out.shape[2] != 16:
        raise ValueError(
            f"{groups.shape[0]} bytes of groups of {size} do not fill out, "
            f"({out.shape[0]}, {out.shape[1]}, {out.shape[2]})"
        )
    with nogil:
        if prompt:
            while g < out.shape[0]:
                two = g + 1 < out.shape[0]
                set_.prompt[index](&groups[g * size], &groups[(g + 1) * size] if two else NULL,
                                   width, &act, c0, nc, &out[g, 0, 0],
                                   &out[g + 1, 0, 0] if two else NULL)
                g += 1 + two
        if pairs and set_.pair != NULL:
            while g + 2 <= out.shape[0]:
                set_.pair[index](&groups[g * size], &groups[(g + 1) * size], width, &act, c0, nc,
                                 &out[g, 0, 0], &out[g + 1, 0, 0])
                g += 2
        while g < out.shape[0]:
            set_.dot[index](&groups[g * size], width, &act, c0, nc, &out[g, 0, 0])
            g += 1


def read(const uint8_t[::1] data):
    """Reads every byte once as fast as the processor can: what kernels are measured against."""
    cdef uint64_t sum
    with nogil:
        sum = golem_read(&data[0], data.shape[0])
    return sum


def multiply(int times):
    """Multiplies bytes as fast as AVX-512 VNNI can -> multiply-adds done, 0 without it."""
    cdef int64_t done
    with nogil:
        done = golem_multiply(times)
    return done
