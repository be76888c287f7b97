"""Random programs of one op each, with everything a pass needs to run them.

Shapes include one row, widths off every vector length where the op allows it, strided views,
several slots, several block types. Every strategy draws a ``Case``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from golem_core.formats.blocks import TYPES, random_blocks
from golem_core.graph.builder import Builder
from golem_core.graph.ops import UNARY, Rope
from golem_core.graph.program import Program
from golem_core.graph.values import Value
from golem_core.graph.weights import Rotation, Weight

MAX_N = 40


@dataclass
class Case:
    """A program, the passes to run one after the other, and how close executors must come."""

    program: Program
    passes: list[dict[str, np.ndarray]]
    outputs: tuple[str, ...]
    slots: int = 1
    context: int = 256
    # Largest |difference| allowed, relative to the largest |value| of the reference's result.
    tolerance: float = 2e-6
    maxima: dict[str, int] = field(default_factory=lambda: {"n": MAX_N, "m": MAX_N})


CASES: dict[str, Callable[[], st.SearchStrategy[Case]]] = {}


def case(strategy):
    """Registers a composite strategy under the name of the op it draws."""
    CASES[strategy.__name__.removesuffix("_case")] = strategy
    return strategy


class Writer:
    """A builder with random inputs: what a strategy writes its op with."""

    def __init__(self, draw):
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.p = Builder("case")
        self.n = draw(st.integers(1, MAX_N))
        self.inputs: dict[str, np.ndarray] = {}
        self.p.axis("n", MAX_N)

    def value(self, *inner: int, name: str = "x", rows=None, scale: float = 1.0) -> Value:
        """An input (n, *inner), sometimes a strided view of a wider one."""
        pad = self.draw(st.sampled_from((0, 0, 3, 16)))
        rows_here = self.n if rows is None else rows
        array = self.rng.standard_normal((rows_here, *inner[:-1], inner[-1] + pad)) * scale
        self.inputs[name] = array.astype(np.float32)
        extent = self.p.columns if rows is None else rows
        whole = self.p.input(name, (extent, *inner[:-1], inner[-1] + pad))
        return self.p.slice(whole, pad, pad + inner[-1]) if pad else whole

    def ids(self, high: int, *inner: int, name: str = "ids", rows=None) -> Value:
        count = self.n if rows is None else rows
        self.inputs[name] = self.rng.integers(0, high, (count, *inner)).astype(np.int32)
        extent = self.p.columns if rows is None else rows
        return self.p.input(name, (extent, *inner), "i32")

    def vector(self, size: int) -> np.ndarray:
        return self.rng.standard_normal(size).astype(np.float32)

    def weight(self, shape: tuple[int, ...], name: str = "w", type_id: int | None = None) -> Weight:
        """Random blocks of a type whose block divides the width."""
        fitting = [t for t in TYPES.values() if shape[-1] % t.weights == 0]
        kind = self.draw(st.sampled_from(fitting)) if type_id is None else TYPES[type_id]
        rows = int(np.prod(shape[:-1]))
        blocks = random_blocks((rows, shape[-1]), kind, self.rng, shape[-1] ** -0.5)
        bias = self.vector(shape[-2]) if self.draw(st.booleans()) else None
        scale = np.float32(0.37).reshape(()) if self.draw(st.booleans()) else None
        if len(shape) == 3:
            bias = None
        return Weight(name, shape, kind, blocks.reshape(*shape[:-1], -1), bias, scale)

    def case(self, *values: Value, **options) -> Case:
        for i, value in enumerate(values):
            self.p.output(f"y{i}", value)
        names = tuple(f"y{i}" for i in range(len(values)))
        return Case(self.p.build(), [self.inputs], names, **options)


WIDTHS = st.sampled_from((1, 2, 3, 7, 8, 16, 17, 31, 32, 33, 64, 100, 256, 300))
BLOCK_WIDTHS = st.sampled_from((32, 64, 96, 128, 256, 512, 576, 1024))
# Integer products round activations to 8 bits, which the reference does not.
Q8_0 = 8  # its id
EIGHT_BITS = 3e-2
BF16_BITS = 1e-2


def tolerance(w: Weight) -> float:
    if w.type.name == "BF16":  # meets columns rounded to BF16 where the processor has that product
        return BF16_BITS
    return 1e-5 if w.type.name in ("F32", "F16") else EIGHT_BITS


@case
@st.composite
def copy_case(draw):
    w = Writer(draw)
    x = w.value(draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(WIDTHS))
    return w.case(w.p.permute(x, draw(st.permutations((0, 1, 2)))), tolerance=0)


@case
@st.composite
def concat_case(draw):
    w = Writer(draw)
    parts = [w.value(draw(WIDTHS), name=f"x{i}") for i in range(draw(st.integers(1, 3)))]
    return w.case(w.p.concat(parts), tolerance=0)


@case
@st.composite
def rows_case(draw):
    w = Writer(draw)
    width, k = draw(BLOCK_WIDTHS), draw(st.integers(1, 3))
    tables = [w.weight((11, width), f"t{i}") for i in range(draw(st.sampled_from((1, k))))]
    ids = w.ids(11, k)
    weights = w.value(k, name="weights") if draw(st.booleans()) else None
    return w.case(w.p.rows(tables, ids, weights, scale=draw(st.sampled_from((1.0, 25.3)))))


@case
@st.composite
def overlay_case(draw):
    w = Writer(draw)
    e, width = draw(st.integers(1, 5)), draw(WIDTHS)
    x, media = w.value(width), w.value(width, name="media", rows=e)
    place = w.ids(e + 1, name="place")
    w.inputs["place"] -= 1
    return w.case(w.p.overlay(x, media, place), tolerance=0)


@case
@st.composite
def pick_case(draw):
    w = Writer(draw)
    x, m = w.value(2, draw(WIDTHS)), draw(st.integers(1, w.n))
    w.inputs["outputs"] = np.sort(w.rng.choice(w.n, m, replace=False)).astype(np.int32)
    w.p.axis("m", MAX_N)
    return w.case(w.p.pick(x, w.p.outputs), tolerance=0)


@case
@st.composite
def linear_case(draw):
    w = Writer(draw)
    matrix = w.weight((draw(st.sampled_from((1, 15, 16, 17, 48, 100))), draw(BLOCK_WIDTHS)))
    return w.case(w.p.linear(w.value(matrix.width), matrix), tolerance=tolerance(matrix))


@case
@st.composite
def linear_by_expert_case(draw):
    w = Writer(draw)
    count, k = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    out, width = draw(st.sampled_from((1, 16, 33))), draw(BLOCK_WIDTHS)
    matrix = w.weight((count, out, width))
    x = w.value(width) if draw(st.booleans()) else w.value(k, width)
    experts = w.ids(count, k)
    return w.case(w.p.linear_by_expert(x, matrix, experts), tolerance=tolerance(matrix))


@case
@st.composite
def route_case(draw):
    w = Writer(draw)
    count = draw(st.integers(1, 40))
    logits = w.value(count, scale=3.0)
    scale = np.abs(w.vector(count)) if draw(st.booleans()) else None
    k = draw(st.integers(1, count))
    made = w.p.route(logits, k, normalise=draw(st.booleans()), scale=1.5, expert_scale=scale)
    return w.case(*made)


@case
@st.composite
def combine_case(draw):
    w = Writer(draw)
    k = draw(st.integers(1, 5))
    return w.case(w.p.combine(w.value(k, draw(WIDTHS)), w.value(k, name="weights")))


@case
@st.composite
def rms_norm_case(draw):
    w = Writer(draw)
    width = draw(WIDTHS)
    inner = (draw(st.integers(1, 4)), width) if draw(st.booleans()) else (width,)
    weight = w.vector(width) if draw(st.booleans()) else None
    floor = draw(st.sampled_from((0.0, 0.5)))
    return w.case(w.p.rms_norm(w.value(*inner), weight, 1e-5, floor))


@case
@st.composite
def layer_norm_case(draw):
    w = Writer(draw)
    width = draw(WIDTHS)
    weight = w.vector(width) if draw(st.booleans()) else None
    bias = w.vector(width) if draw(st.booleans()) else None
    return w.case(w.p.layer_norm(w.value(width), weight, bias, 1e-5))


@case
@st.composite
def rope_case(draw):
    w = Writer(draw)
    parts = draw(st.sampled_from((1, 1, 2)))
    pairs = draw(st.sampled_from((2, 4, 16, 32, 34)))
    width = 2 * pairs + parts * draw(st.sampled_from((0, 2, 10)))
    axes = draw(st.integers(1, 3))
    axis = w.rng.integers(0, axes, pairs).astype(np.int32)
    freq = (10000.0 ** -w.rng.random(pairs)).astype(np.float32)
    pairing = draw(st.sampled_from(("halves", "adjacent")))
    spec = Rope(freq, pairing, axis if axes > 1 else None, parts, draw(st.sampled_from((1.0, 1.3))))
    positions = w.ids(200, axes, name="at") if axes > 1 else w.ids(200, name="at")
    x = w.value(draw(st.integers(1, 4)), width)
    return w.case(w.p.rope(x, positions, spec), tolerance=1e-5)


@case
@st.composite
def unary_case(draw):
    w = Writer(draw)
    x = w.value(draw(WIDTHS), scale=draw(st.sampled_from((1.0, 30.0))))
    if (kind := draw(st.sampled_from(UNARY))) == "exp":
        x = w.p.clamp(x, -20, 20)
    return w.case(w.p.unary(x, kind), tolerance=4e-6)


@case
@st.composite
def gate_case(draw):
    w = Writer(draw)
    width = draw(WIDTHS)
    kind = draw(st.sampled_from(tuple(k for k in UNARY if k != "exp")))
    return w.case(w.p.gate(w.value(width), w.value(width, name="b"), kind), tolerance=4e-6)


def _second(w: Writer, inner: tuple[int, ...], name: str):
    """A second operand in one of the forms an elementwise op allows."""
    form = w.draw(st.sampled_from(("same", "column", "row", "vector", "number")))
    if form == "same":
        return w.value(*inner, name=name)
    if form == "column":
        return w.value(*(1 for _ in inner), name=name)
    if form == "row":
        return w.value(*inner, name=name, rows=1)
    return w.vector(inner[-1]) if form == "vector" else 1.7


def _elementwise(op: str, seconds: int):
    @st.composite
    def strategy(draw):
        w = Writer(draw)
        inner = (draw(st.integers(1, 3)), draw(WIDTHS)) if draw(st.booleans()) else (draw(WIDTHS),)
        x = w.value(*inner)
        return w.case(getattr(w.p, op)(x, *(_second(w, inner, f"s{i}") for i in range(seconds))))

    CASES[op] = strategy
    return strategy


add_case = _elementwise("add", 1)
mul_case = _elementwise("mul", 1)
fma_case = _elementwise("fma", 2)


@case
@st.composite
def clamp_case(draw):
    w = Writer(draw)
    return w.case(w.p.clamp(w.value(draw(WIDTHS)), -0.5, 0.75), tolerance=0)


@case
@st.composite
def softcap_case(draw):
    w = Writer(draw)
    return w.case(w.p.softcap(w.value(draw(WIDTHS), scale=40.0), 30.0), tolerance=4e-6)


@case
@st.composite
def softmax_case(draw):
    w = Writer(draw)
    return w.case(w.p.softmax(w.value(draw(WIDTHS), scale=5.0)), tolerance=4e-6)


@case
@st.composite
def top_k_case(draw):
    w = Writer(draw)
    width = draw(WIDTHS)
    return w.case(*w.p.top_k(w.value(width), draw(st.integers(1, width))), tolerance=0)


@case
@st.composite
def peaks_case(draw):
    w = Writer(draw)
    width = draw(st.sampled_from((2048, 2049, 2 * 2048 + 17)))
    return w.case(w.p.peaks(w.value(width, scale=5.0)), tolerance=0)


@case
@st.composite
def reduce_case(draw):
    w = Writer(draw)
    k = draw(st.integers(1, 12))
    weights = w.vector(k) if draw(st.booleans()) else None
    x = w.value(k, draw(WIDTHS))
    return w.case(w.p.reduce(x, draw(st.sampled_from(("sum", "mean"))), weights))


def _cuts(w: Writer) -> np.ndarray:
    """Offsets of texts that together are the n rows; no text is empty."""
    inside = w.rng.choice(np.arange(1, w.n), min(w.n - 1, w.draw(st.integers(0, 4))), replace=False)
    return np.array([0, *sorted(inside), w.n], np.int32)


@case
@st.composite
def pool_case(draw):
    w = Writer(draw)
    w.inputs["offsets"] = cuts = _cuts(w)
    offsets = w.p.input("offsets", (w.p.axis("s", MAX_N) + 1,), "i32")
    assert len(cuts) <= MAX_N
    # Up to MAX_N rows are summed, in another order than numpy's, and may nearly cancel.
    return w.case(w.p.pool(w.value(draw(WIDTHS)), offsets), tolerance=1e-5)


def attention_tolerance(w: Writer, plain: float) -> float:
    """Beside an 8-bit product, which is written here now and then, attention rounds to BF16 too."""
    if not w.draw(st.booleans()):
        return plain
    x = w.p.input("z", (w.p.columns, 32))
    w.inputs["z"] = np.zeros((w.n, 32), np.float32)
    w.p.output("beside", w.p.linear(x, w.weight((16, 32), "beside", Q8_0)))
    return 2e-2


@st.composite
def attend_in_one_pass(draw):
    """Attention without a ring: over all rows, over texts, over groups, with every mask."""
    w = Writer(draw)
    kv, share = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    d, dv = draw(st.sampled_from(((8, 8), (16, 24), (64, 64), (33, 20))))
    options = {
        "back": draw(st.sampled_from((None, 0, 5))),
        "ahead": draw(st.sampled_from((0, 3, None))),
    }
    form = draw(st.sampled_from(("all", "texts", "groups")))
    if form == "texts":
        w.inputs["offsets"] = _cuts(w)
        options["offsets"] = w.p.input("offsets", (w.p.axis("s", MAX_N) + 1,), "i32")
    elif form == "groups":
        options["group"] = draw(st.integers(1, 12))
    if draw(st.booleans()):
        options["softcap"] = 3.0
    if options["back"] is not None and options["ahead"] == 0 and draw(st.booleans()):
        shape = (options["back"] + 1, kv * share, d)
        options["rel"] = w.rng.standard_normal(shape).astype(np.float32)
    q = w.value(kv * share, d, name="q")
    k, v = w.value(kv, d, name="k"), w.value(kv, dv, name="v")
    tolerance = attention_tolerance(w, 1e-5)
    return w.case(w.p.attend(q, k, v, scale=d**-0.5, **options), tolerance=tolerance)


@st.composite
def attend_with_ring(draw):
    """Several slots over several passes: full and sliding rings that wrap, prompts and draws."""
    w = Writer(draw)
    kv, share = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    d, window = draw(st.sampled_from((8, 20, 64))), draw(st.sampled_from((None, 5, 70)))
    context, slots = draw(st.sampled_from((96, 700))), draw(st.integers(1, 3))
    p, n = w.p, w.p.columns
    ring = p.ring("kv", kv, d, window=window)
    q, k, v = (p.input(s, (n, h, d)) for s, h in (("q", kv * share), ("k", kv), ("v", kv)))
    back = None if window is None else window - 1
    p.output("y0", p.attend(q, k, v, ring, scale=d**-0.5, back=back))
    tolerance = attention_tolerance(w, 2e-3)  # the cpu's rings are f16
    at, passes = [0] * slots, []
    for _ in range(draw(st.integers(1, 6))):
        runs = _runs(w, at, context)
        if not runs:
            break
        count = sum(r[2] for r in runs)
        arrays = {"runs": np.array(runs, np.int32)}
        if "z" in w.inputs:
            arrays["z"] = np.zeros((count, 32), np.float32)
        for name, h in (("q", kv * share), ("k", kv), ("v", kv)):
            arrays[name] = w.rng.standard_normal((count, h, d)).astype(np.float32)
        passes.append(arrays)
    return Case(p.build(), passes, ("y0",), slots, context, tolerance=tolerance)


def _runs(w: Writer, at: list[int], context: int) -> list[tuple[int, int, int, int, int]]:
    """Some slots draw one column each, some read a piece of a prompt; at moves on."""
    runs, first = [], 0
    order = w.rng.permutation(len(at)).tolist()
    drawn = [s for s in order if at[s] and w.rng.random() < 0.5]
    for slot in drawn + [s for s in order if s not in drawn]:
        role = 0 if slot in drawn else 1
        if role == 1 and at[slot] and w.rng.random() < 0.2:
            at[slot] = int(w.rng.integers(0, at[slot] + 1)) if w.rng.random() < 0.5 else 0
        room = min(MAX_N - first, context - at[slot])
        if room < 1:
            continue
        count = 1 if role == 0 else int(w.rng.integers(1, room + 1))
        runs.append((slot, first, count, at[slot], role))
        at[slot] += count
        first += count
    return runs


def _conversations(w: Writer, inputs: dict[str, tuple[int, ...]], context: int, slots: int, rate=1):
    """Passes of several slots with random arrays (columns · rate, *inner) for every input."""
    at, passes = [0] * slots, []
    for _ in range(w.draw(st.integers(1, 6))):
        runs = _runs(w, at, context)
        if not runs:
            break
        count = sum(r[2] for r in runs) * rate
        arrays = {"runs": np.array(runs, np.int32)}
        for name, inner in inputs.items():
            arrays[name] = w.rng.standard_normal((count, *inner)).astype(np.float32)
        passes.append(arrays)
    return passes


@case
@st.composite
def conv1d_case(draw):
    """Each channel by itself, in groups or all mixed; over one sequence or over runs of slots."""
    w = Writer(draw)
    groups = draw(st.sampled_from((1, 1, 2, 5)))
    each, mine = draw(st.sampled_from(((1, 1), (7, 3), (16, 70), (33, 17))))
    if draw(st.booleans()):
        groups, each, mine = draw(st.sampled_from((3, 64, 100))), 1, 1
    taps, dilation = draw(st.sampled_from(((1, 1), (4, 1), (5, 1), (3, 2), (8, 1))))
    stride = draw(st.sampled_from((1, 1, 2)))
    stride = stride if (taps - 1) * dilation + 1 >= stride else 1
    kernel = w.rng.standard_normal((groups * mine, each, taps)).astype(np.float32)
    options = {"stride": stride, "dilation": dilation, "groups": groups}
    options["start"] = draw(st.sampled_from(("zeros", "first")))
    bias = w.vector(groups * mine) if draw(st.booleans()) else None
    wide = groups * each
    if draw(st.booleans()):
        x = w.value(wide, rows=draw(st.sampled_from((0, 1, 20, 300))) * stride)
        y = w.p.conv1d(x, kernel, bias, **options)
        return w.case(w.p.unary(y, "silu") if draw(st.booleans()) else y, tolerance=2e-5)
    rate = stride * draw(st.sampled_from((1, 3)))
    x = w.p.input("x", (w.p.columns * rate, wide))
    w.p.output("y0", w.p.conv1d(x, kernel, bias, window="past", **options))
    slots = draw(st.integers(1, 3))
    passes = _conversations(w, {"x": (wide,)}, 300, slots, rate)
    return Case(w.p.build(), passes, ("y0",), slots, 300, tolerance=2e-5)


@case
@st.composite
def hadamard_case(draw):
    w = Writer(draw)
    kind, block = draw(
        st.sampled_from(
            (("sylvester", 1), ("sylvester", 32), ("sylvester", 1024), ("h4", 4), ("h4", 256))
        )
    )
    width = block * draw(st.integers(1, 3))
    signs = w.rng.choice([-1.0, 1.0], width).astype(np.float32) if draw(st.booleans()) else None
    inner = (draw(st.integers(1, 3)), width) if draw(st.booleans()) else (width,)
    rotation = Rotation(kind, block, signs)
    return w.case(w.p.hadamard(w.value(*inner), rotation, draw(st.booleans())), tolerance=4e-6)


@case
@st.composite
def delta_rule_case(draw):
    w = Writer(draw)
    keys, share = draw(st.sampled_from(((1, 1), (2, 3), (3, 2))))
    size, values = draw(st.sampled_from(((1, 1), (7, 20), (16, 16), (64, 33), (128, 128))))
    count, n = keys * share, w.p.columns
    shapes = {"q": (keys, size), "k": (keys, size), "v": (count, values)}
    shapes |= {"decay": (count,), "beta": (count,)}
    given = {name: w.p.input(name, (n, *inner)) for name, inner in shapes.items()}
    q, k = (w.p.rms_norm(given[s], None, 1e-6) for s in "qk")
    k = w.p.mul(k, size**-0.5)  # of length 1, as they are in a delta net
    decay = w.p.mul(w.p.unary(given["decay"], "softplus"), -0.5)
    beta = w.p.unary(given["beta"], "sigmoid")
    heads, scale = draw(st.sampled_from(("tiled", "grouped"))), size**-0.5
    options = {"matrix": "delta", "scale": scale, "heads": heads}
    w.p.output("y0", w.p.delta_rule(q, k, given["v"], decay, beta, **options))
    slots = draw(st.integers(1, 3))
    passes = _conversations(w, shapes, 300, slots)
    return Case(w.p.build(), passes, ("y0",), slots, 300, tolerance=1e-5)


@case
@st.composite
def attend_case(draw):
    return draw(attend_in_one_pass() if draw(st.booleans()) else attend_with_ring())


@case
@st.composite
def conv2d_case(draw):
    """Maps of a fixed and of a symbolic height, kernels that look past the edges, doubled maps."""
    w = Writer(draw)
    channels, out = draw(st.sampled_from(((1, 5), (3, 16), (8, 33), (16, 1))))
    high, wide = draw(st.sampled_from(((1, 1), (3, 3), (2, 5))))
    stride, up = draw(st.sampled_from(((1, 1), (2, 1), (1, 2), (3, 1))))
    pad, columns = draw(st.integers(0, 2)), draw(st.integers(5, 20))
    rows = None if draw(st.booleans()) else draw(st.integers(3, 20))
    if rows is None:
        w.n = max(w.n, 3)
    kernel = w.rng.standard_normal((out, channels, high, wide)).astype(np.float32)
    bias = w.vector(out) if draw(st.booleans()) else None
    x = w.value(columns, channels, rows=rows)
    return w.case(w.p.conv2d(x, kernel, bias, stride=stride, pad=pad, up=up), tolerance=1e-5)
