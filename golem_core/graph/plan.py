"""The planner's passes that hold for every executor: which ops a pass needs, and which run as one.

A plan is made for a set of wanted outputs. Ops nobody needs are dropped, the selection of scored
rows moves up to where rows still depend on each other, and products are joined with what follows
them. ``GOLEM_PLAN=plain`` leaves the last of these out; results keep their bits either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from golem_core.graph.ops import OPS
from golem_core.graph.program import Node, Program
from golem_core.graph.values import Const, Dim, ProgramError, Value
from golem_core.graph.weights import Weight

FINISHES = 4  # elementwise ops a product's store takes on at most


@dataclass(frozen=True, eq=False)
class Finish:
    """An elementwise op on a product before it is stored: ``op(product, operand)``."""

    op: str
    attrs: dict
    operand: Value | Const | None = None


@dataclass(frozen=True, eq=False)
class Segment:
    """One product of a planned linear: ``finishes(weight · x)``, or ``gate(weight · x, pair · x)``.

    output: the value its store makes.
    """

    weight: Weight
    output: Value
    pair: Weight | None = None
    gate: str | None = None
    finishes: tuple[Finish, ...] = ()


@dataclass(eq=False)
class Plan:
    """The ops of a pass in order, and where its wanted outputs are found.

    A ``linear`` has a tuple of Segments in attrs["segments"], its inputs are x and the operands of
    their finishes; attrs["precise"] says that a softmax is taken of what it makes (see _precise).
    A ``linear_by_expert`` has one Segment, its inputs stay. A ``store`` (k, v) writes a ring that
    the attends after it read; an ``attend`` whose queries are picked rows has as its last input
    which column each is of.
    """

    nodes: list[Node]
    outputs: dict[str, Value]

    def __str__(self) -> str:
        return "\n".join(f"{node.site:24} {node.op}" for node in self.nodes)


def make_plan(program: Program, wanted: Iterable[str], *, fuse: bool = True) -> Plan:
    """The plan of a program for a set of output names. Raises ProgramError for unknown ones."""
    wanted = tuple(wanted)
    for name in wanted:
        if name not in program.outputs:
            known = ", ".join(program.outputs)
            raise ProgramError(f"output {name!r} is not among the program's: {known}")
    outputs = {name: program.outputs[name] for name in wanted}
    plan = _raise_picks(_prune(_split_stores(program.nodes), outputs), outputs)
    precise = _precise(plan)
    plan.nodes = [_as_segment(node, precise) for node in plan.nodes]
    if fuse:
        pinned = {v.root.id for v in plan.outputs.values()}
        plan.nodes = _join_gates(plan.nodes, pinned)
        plan.nodes = _join_finishes(plan.nodes, pinned)
        plan.nodes = _join_unaries(plan.nodes, pinned)
        plan.nodes = _group(plan.nodes)
    return plan


# ---- what a pass needs


def _split_stores(nodes: Sequence[Node]) -> list[Node]:
    """Writing a ring becomes an op of its own: it is needed even where its attend is not."""
    split = []
    for node in nodes:
        if node.op == "attend" and node.writes:
            q, k, v, *rest = node.inputs
            split.append(
                Node("store", (k, v), {"ring": node.attrs["ring"]}, (), (), node.writes, node.site)
            )
            attrs = node.attrs | {"stores": True}
            node = replace(node, inputs=(q, None, None, *rest), writes=(), attrs=attrs)
        split.append(node)
    return split


def _prune(nodes: Sequence[Node], outputs: dict[str, Value]) -> list[Node]:
    """The ops that outputs or states depend on. Later passes read every state."""
    needed = {value.root.id for value in outputs.values()}
    kept = []
    for node in reversed(nodes):
        if node.writes or any(v.id in needed for v in node.outputs):
            kept.append(node)
            needed.update(v.root.id for v in node.inputs if isinstance(v, Value))
    return kept[::-1]


# ---- selection of rows


class _Ids:
    """Fresh ids for values that a plan makes."""

    def __init__(self):
        self.last = 1 << 30

    def value(self, like: Value, shape, node=None, root=None) -> Value:
        self.last += 1
        if root is None:
            return Value(self.last, like.name, shape, like.dtype, node)
        return Value(self.last, like.name, shape, like.dtype, node, root, like.offset, like.strides)


def _same_rows(value: Value) -> bool:
    """Whether row i of a view is a part of row i of its root."""
    return value.rows == value.root.rows and value.strides[0] == value.root.strides[0]


def _raise_picks(nodes: Sequence[Node], outputs: dict[str, Value]) -> Plan:
    """Picks climb through row-wise ops whose result only they read: fewer rows are computed."""
    wanted = _row_demands(nodes, outputs)
    ids = _Ids()
    moved: dict[int, Value] = {}  # root made by the program -> root of the plan
    picked: dict[tuple[int, int], Value] = {}  # (root, rows picked) -> its picked rows
    made: list[Node] = []

    def now(value):
        """An operand in terms of the plan's values."""
        if not isinstance(value, Value) or value.root.id not in moved:
            return value
        root = moved[value.root.id]
        if not value.is_view:
            return root
        return ids.value(value, (root.rows, *value.inner), root.node, root)

    def rows_of(value: Value, at: Value) -> Value:
        """The picked rows of an operand; picks them where no op made them already."""
        key = value.root.id, at.id
        if key not in picked:
            root = now(value.root)
            node = Node("pick", (root, now(at)), {}, (), (), (), "pick")
            picked[key] = ids.value(root, (at.rows, *root.inner), node)
            node.outputs = (picked[key],)
            made.append(node)
        root = picked[key]
        if not value.is_view:
            return root
        return ids.value(value, (at.rows, *value.inner), root.node, root)

    for node in nodes:
        at = _only_pick(node, wanted)
        if node.op == "pick" and _same_rows(node.inputs[0]) and not node.inputs[0].is_view:
            moved[node.outputs[0].id] = rows_of(*node.inputs)
        elif at is None:
            made.append(replace(node, inputs=tuple(now(v) for v in node.inputs)))
        else:
            rows = node.outputs[0].rows
            inputs = tuple(
                rows_of(v, at) if isinstance(v, Value) and v.rows == rows else now(v)
                for v in node.inputs
            )
            if node.op == "attend":
                inputs = (*inputs, now(at))  # which column each query is of
            new = replace(node, inputs=inputs)
            new.outputs = tuple(ids.value(v, (at.rows, *v.inner), new) for v in node.outputs)
            picked.update(
                {(v.id, at.id): n for v, n in zip(node.outputs, new.outputs, strict=True)}
            )
            made.append(new)
    return Plan(made, {name: now(value) for name, value in outputs.items()})


def _row_demands(nodes: Sequence[Node], outputs: dict[str, Value]) -> dict[int, set[Value | None]]:
    """Of every root: the picks that read it, and None where all of its rows are read."""
    wanted: dict[int, set[Value | None]] = {}

    def ask(value, rows):
        if isinstance(value, Value):
            wanted.setdefault(value.root.id, set()).add(rows)

    for value in outputs.values():
        ask(value, None)
    for node in reversed(nodes):
        at = _only_pick(node, wanted)
        if node.op == "pick":
            whole = not _same_rows(node.inputs[0]) or node.inputs[0].is_view
            ask(node.inputs[0], None if whole else node.inputs[1])
            ask(node.inputs[1], None)
            continue
        for value in node.inputs:
            same = at is not None and isinstance(value, Value)
            same = same and value.rows == node.outputs[0].rows
            ask(value, at if same and _same_rows(value) else None)
    return wanted


def _only_pick(node: Node, wanted: dict[int, set[Value | None]]) -> Value | None:
    """The rows that are picked of everything a row-wise op makes, where nothing else is read.

    An attend over the ring of another one is row-wise too: a query needs no other query. One that
    stores keys itself would be too, but its queries are made in one product with those.
    """
    shares = node.op == "attend" and node.attrs["ring"] is not None
    shares = shares and not node.attrs.get("stores")
    rowwise = shares or (node.op in OPS and OPS[node.op].rowwise and not node.reads)
    if node.op == "pick" or not rowwise or not node.outputs or node.writes:
        return None
    asked = set().union(*(wanted.get(v.id, set()) for v in node.outputs))
    rows = node.outputs[0].rows
    if len(asked) != 1 or not isinstance(rows, Dim):
        return None
    if any(isinstance(v, Value) and v.rows == rows and not _same_rows(v) for v in node.inputs):
        return None
    return asked.pop()


# ---- products and what follows them

PRODUCTS = {"linear": 1, "linear_by_expert": 2}  # and how many operands are their own

# Ops that hand on what a softmax will be taken of.
_HANDED_ON = {"rms_norm", "layer_norm", "rope", "copy", "concat", "pick", "mul", "softcap", "clamp"}


def _precise(plan: Plan) -> set[int]:
    """Roots of products that end in a softmax: queries, keys, values and the wanted outputs.

    Rounding the columns of these products costs most of what a distribution loses, and they are
    a small part of a pass, so executors compute them with finer activations.
    """
    precise = {value.root.id for value in plan.outputs.values()}
    for node in reversed(plan.nodes):
        passes_on = node.op in _HANDED_ON and any(v.id in precise for v in node.outputs)
        if passes_on or node.op in ("attend", "store"):
            precise.update(v.root.id for v in node.inputs if isinstance(v, Value))
    return precise


def _as_segment(node: Node, precise: set[int]) -> Node:
    if node.op not in PRODUCTS:
        return node
    (output,) = node.outputs
    node = replace(node, attrs={"precise": output.id in precise})
    return _linear(node, (Segment(node.weights[0], output),))


def _linear(node: Node, segments: tuple[Segment, ...], site: str | None = None) -> Node:
    """A product of the same operands with other segments."""
    operands = [f.operand for s in segments for f in s.finishes if f.operand is not None]
    weights = [w for s in segments for w in (s.weight, s.pair) if w is not None]
    made = Node(
        node.op,
        (*node.inputs[: PRODUCTS[node.op]], *operands),
        {"segments": segments, "precise": node.attrs["precise"]},
        tuple(weights),
        (),
        (),
        site or node.site,
    )
    made.outputs = tuple(s.output for s in segments)
    return made


def _readers(nodes: Sequence[Node]) -> dict[int, list[Node]]:
    """Of every root, the ops that read it; one that reads it twice is listed twice."""
    readers: dict[int, list[Node]] = {}
    for node in nodes:
        for value in node.inputs:
            if isinstance(value, Value):
                readers.setdefault(value.root.id, []).append(node)
    return readers


def _makers(nodes: Sequence[Node]) -> dict[int, Node]:
    return {value.id: node for node in nodes for value in node.outputs}


def _alike(a: Value, b: Value) -> bool:
    """Whether two operands are the same elements."""
    return (a.root.id, a.shape, a.offset, a.strides) == (b.root.id, b.shape, b.offset, b.strides)


def _join_gates(nodes: list[Node], pinned: set[int]) -> list[Node]:
    """Rules A, X: a gate of two products of one x is a pair with the activation in its store."""
    readers, makers = _readers(nodes), _makers(nodes)
    instead: dict[int, Node | None] = {}

    def only_read_here(value) -> Node | None:
        node = makers.get(value.root.id)
        if node is None or node.op not in PRODUCTS or value.is_view or value.id in pinned:
            return None
        return node if len(readers[value.id]) == 1 else None

    for node in nodes:
        if node.op != "gate":
            continue
        a, b = (only_read_here(v) for v in node.inputs)
        if a is None or b is None or a is b or a.op != b.op:
            continue
        if not all(_alike(x, y) for x, y in zip(a.inputs, b.inputs, strict=True)):
            continue
        pair = Segment(a.weights[0], node.outputs[0], b.weights[0], node.attrs["kind"])
        instead.update({id(a): None, id(b): None, id(node): _linear(a, (pair,), node.site)})
    return _replaced(nodes, instead)


def _replaced(nodes: Sequence[Node], instead: dict[int, Node | None]) -> list[Node]:
    swapped = (instead.get(id(node), node) for node in nodes)
    return [node for node in swapped if node is not None]


def _join_finishes(nodes: list[Node], pinned: set[int]) -> list[Node]:
    """Rules E and R: an elementwise op that alone reads a product moves into its store."""
    readers, makers = _readers(nodes), _makers(nodes)
    instead: dict[int, Node | None] = {}
    for node in nodes:
        for value in node.inputs:
            product = makers.get(value.root.id) if isinstance(value, Value) else None
            if product is None or product.op not in PRODUCTS or value.is_view or value.id in pinned:
                continue
            if len(readers[value.id]) != 1:
                continue
            (segment,) = product.attrs["segments"]
            finishes = _finishes(node, value)
            if finishes is None or len(segment.finishes) + len(finishes) > FINISHES:
                continue
            if product.op != "linear" and any(f.operand is not None for f in finishes):
                continue  # experts store their columns in another order than operands lie
            joined = _linear(
                product,
                (
                    replace(
                        segment,
                        output=node.outputs[0],
                        finishes=segment.finishes + finishes,
                    ),
                ),
            )
            instead[id(product)] = None
            instead[id(node)] = joined
            # Whoever comes next sees the joined product as the maker of the op's result.
            makers[node.outputs[0].id] = joined
            instead[id(joined)] = joined
            break
    return _settled(nodes, instead)


def _join_unaries(nodes: list[Node], pinned: set[int]) -> list[Node]:
    """Rule C: a unary that alone reads a convolution is done where that stores."""
    readers, makers = _readers(nodes), _makers(nodes)
    instead: dict[int, Node | None] = {}
    for node in nodes:
        made = node.inputs[0] if node.op == "unary" else None
        conv = None if made is None else makers.get(made.root.id)
        if conv is None or conv.op != "conv1d" or made.is_view or made.id in pinned:
            continue
        if len(readers[made.id]) == 1:
            joined = replace(conv, attrs={**conv.attrs, "unary": node.attrs["kind"]})
            joined.outputs = node.outputs
            instead.update({id(conv): joined, id(node): None})
    return _replaced(nodes, instead)


def _settled(nodes: Sequence[Node], instead: dict[int, Node | None]) -> list[Node]:
    """The nodes with replacements followed to their end."""
    settled = []
    for node in nodes:
        while node is not None and instead.get(id(node), node) is not node:
            node = instead[id(node)]
        if node is not None:
            settled.append(node)
    return settled


def _finishes(node: Node, product: Value) -> tuple[Finish, ...] | None:
    """An elementwise op as finishes of the product it reads; None where it cannot be."""
    if len(node.outputs) != 1 or node.outputs[0].shape != product.shape:
        return None
    if node.op in ("unary", "clamp", "softcap"):
        return (Finish(node.op, node.attrs),)
    if node.op not in ("add", "mul", "fma"):
        return None
    x, y, *rest = node.inputs
    other = y if x is product else x  # sums and products of two are the same either way round
    if not all(_fits(v, product) for v in (other, *rest)) or other is product:
        return None
    first = Finish("add" if node.op == "add" else "mul", {}, other)
    return (first,) if node.op != "fma" else (first, Finish("add", {}, rest[0]))


def _fits(operand: Value | Const, product: Value) -> bool:
    """Whether an operand broadcasts over the product's rows."""
    if isinstance(operand, Const):
        return True
    if len(operand.shape) != len(product.shape) or operand.strides[-1] not in (1,):
        return False
    return all(a in (1, b) for a, b in zip(operand.shape, product.shape, strict=True))


def _group(nodes: list[Node]) -> list[Node]:
    """Rule G: linears of one x become one op, at the place of the first that can take them."""
    place = {value.id: i for i, node in enumerate(nodes) for value in node.outputs}
    groups: list[tuple[int, list[Node]]] = []
    for i, node in enumerate(nodes):
        if node.op != "linear":
            continue
        ready = max(
            (place.get(v.root.id, -1) for v in node.inputs if isinstance(v, Value)), default=-1
        )
        for at, members in groups:
            same = members[0].attrs["precise"] == node.attrs["precise"]
            if same and _alike(members[0].inputs[0], node.inputs[0]) and ready < at:
                members.append(node)
                break
        else:
            groups.append((i, [node]))
    instead: dict[int, Node | None] = {}
    for _, members in groups:
        if len(members) > 1:
            segments = tuple(s for m in members for s in m.attrs["segments"])
            instead.update({id(m): None for m in members})
            instead[id(members[0])] = _linear(members[0], segments)
    return _replaced(nodes, instead)
