"""The builder: with it a plugin writes its model down once, as ops over values.

It checks at the call, so a mistake's traceback ends in the author's own line, and it names every
value after the scope it was written in. Writing the same pure op twice gives the same value.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from golem_core.graph.ops import (
    OPS,
    AttentionOps,
    ElementwiseOps,
    PictureOps,
    ProductOps,
    RecurrentOps,
    RowOps,
    ViewOps,
)
from golem_core.graph.program import Node, Program, State
from golem_core.graph.values import Const, Dim, Extent, ProgramError, Shape, Value, show
from golem_core.graph.weights import Weight
from golem_core.state.declare import Ring


class Builder(ViewOps, RowOps, ProductOps, AttentionOps, RecurrentOps, PictureOps, ElementwiseOps):
    """Writes one program. The ops are its methods; see golem_core.graph.ops for each."""

    def __init__(self, name: str):
        self._name = name
        self._nodes: list[Node] = []
        self._inputs: dict[str, Value] = {}
        self._outputs: dict[str, Value] = {}
        self._states: dict[str, State] = {}
        self._written: dict[str, str] = {}
        self._axes: dict[str, int] = {}
        self._scopes: list[str] = []
        self._made: dict[tuple, tuple[Value, ...]] = {}
        self._ids = 0

    # ---- what a program is made of

    def axis(self, symbol: str, max: int) -> Dim:
        """Declares a symbolic outermost extent and the most it can be bound to."""
        if max < 1:
            raise ProgramError(f"axis {symbol!r}: a maximum of {max}")
        if self._axes.setdefault(symbol, max) != max:
            raise ProgramError(
                f"axis {symbol!r} was declared with the maximum {self._axes[symbol]}"
            )
        return Dim.of(symbol)

    def input(self, name: str, shape: Shape, dtype: str = "f32") -> Value:
        """An array the pass binds by name; asking twice gives the same value."""
        if name in self._inputs:
            known = self._inputs[name]
            if known.shape != tuple(shape) or known.dtype != dtype:
                raise ProgramError(f"input {name!r} is {known!r}, not {show(shape)} {dtype}")
            return known
        value = self._inputs[name] = self._value(name, shape, dtype)
        return value

    def output(self, name: str, value: Value) -> None:
        """Gives a value a name that a pass can ask for."""
        if name in self._outputs:
            raise ProgramError(f"output {name!r} is named twice")
        self._outputs[name] = value

    @contextmanager
    def scope(self, name: str):
        """Names what is written inside it: ``with p.scope("blk.3")``."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def declare(self, state: State) -> State:
        """Declares a state by hand; conv1d and delta_rule declare their own."""
        if state.name in self._states:
            raise ProgramError(f"state {state.name!r} is declared twice")
        self._states[state.name] = state
        return state

    def ring(
        self,
        name: str,
        heads: int,
        k: int,
        v: int | None = None,
        window: int | None = None,
        rate: int = 1,
    ) -> Ring:
        """Declares keys (heads of k) and values (heads of v) of a slot; window None keeps all."""
        return self.declare(Ring(name, heads, k, k if v is None else v, window, rate))

    # ---- the inputs of a decoder

    @property
    def columns(self) -> Dim:
        """n: the columns of a pass."""
        return self.axis("n", self.columns_most)

    @property
    def columns_most(self) -> int:
        """The most columns a pass may have."""
        return self._axes.get("n", 512)

    @property
    def tokens(self) -> Value:
        """(n,) i32: the token of every column."""
        return self.input("tokens", (self.columns,), "i32")

    @property
    def index(self) -> Value:
        """(n,) i32: the place of a column in its conversation. Derived from the pass's runs."""
        return self.input("index", (self.columns,), "i32")

    @property
    def positions(self) -> Value:
        """(n,) i32: for angles only; the index where the pass binds none."""
        return self.input("positions", (self.columns,), "i32")

    def embeddings(self, width: int) -> Value:
        """(e, width) f32: rows of pictures and sound; e = 0 where the pass binds none."""
        return self.input("embeddings", (self.axis("e", self.columns_most), width))

    @property
    def place(self) -> Value:
        """(n,) i32: which of the embeddings a column is, -1 (all, if none are bound) for text."""
        return self.input("place", (self.columns,), "i32")

    @property
    def until(self) -> Value:
        """(n,) i32: the last index a column sees, the end of its picture; its own by default."""
        return self.input("until", (self.columns,), "i32")

    @property
    def outputs(self) -> Value:
        """(m,) i32: the columns to score, ascending."""
        return self.input("outputs", (self.axis("m", self._axes.get("m", 64)),), "i32")

    # ---- the inputs of an encoder

    @property
    def offsets(self) -> Value:
        """(s + 1,) i32: text i of the pass is its columns offsets[i] … offsets[i + 1] - 1."""
        return self.input("offsets", (self.axis("s", self._axes.get("s", 64)) + 1,), "i32")

    @property
    def picked(self) -> Value:
        """(s,) i32: of every text the column that stands for it."""
        return self.input("picked", (self.axis("s", self._axes.get("s", 64)),), "i32")

    # ---- machinery of the ops

    def site(self, op: str) -> str:
        return "/".join([*self._scopes, op])

    def fail(self, op: str, text: str) -> ProgramError:
        at = "/".join(self._scopes)
        return ProgramError(f"{op} at {at}: {text}" if at else f"{op}: {text}")

    def _value(self, name, shape, dtype, node=None, **view) -> Value:
        for extent in shape[1:]:
            if isinstance(extent, Dim):
                raise ProgramError(
                    f"axis {extent} in an inner position of {name} {show(shape)}: only the "
                    "outermost axis may be symbolic"
                )
        if dtype not in ("f32", "i32"):
            raise ProgramError(f"{name}: dtype {dtype!r}; a program knows f32 and i32")
        self._ids += 1
        return Value(self._ids, name, shape, dtype, node, **view)

    def view(self, op: str, x: Value, shape: Shape, offset: int, strides: Sequence[int]) -> Value:
        """A value that shares the storage of x; offset in elements from x's first."""
        return self._value(
            f"{self.site(op)}#{self._ids + 1}",
            shape,
            x.dtype,
            x.node,
            root=x.root,
            offset=x.offset + offset,
            strides=tuple(strides),
        )

    def emit(
        self,
        op: str,
        inputs: Sequence[Value | Const | None],
        shapes: Sequence[tuple[Shape, str]],
        *,
        weights: Sequence[Weight] = (),
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        **attrs: Any,
    ) -> tuple[Value, ...]:
        """Appends an op and returns its results, or those of the same op written before."""
        key = None
        if not reads and not writes:
            key = _key(op, inputs, weights, attrs)
            if key in self._made:
                return self._made[key]
        for name in writes:
            if name in self._written:
                raise self.fail(
                    op, f"ring {name!r} is written twice ({self._written[name]}, {self.site(op)})"
                )
            self._written[name] = self.site(op)
        node = Node(
            op, tuple(inputs), attrs, tuple(weights), tuple(reads), tuple(writes), self.site(op)
        )
        node.outputs = tuple(
            self._value(f"{node.site}#{self._ids + 1}", shape, dtype, node)
            for shape, dtype in shapes
        )
        self._nodes.append(node)
        if key is not None:
            self._made[key] = node.outputs
        return node.outputs

    def state(self, op: str, name: str) -> State:
        if name not in self._states:
            raise self.fail(op, f"state {name!r} is not declared; there are {list(self._states)}")
        return self._states[name]

    def build(self, quantum: int = 1) -> Program:
        """The finished program."""
        if not self._outputs:
            raise ProgramError(f"program {self._name} names no output")
        for name, at in self._reads_before_writes():
            raise ProgramError(f"ring {name!r} is read at {at} and written by nobody")
        return Program(
            self._name,
            tuple(self._nodes),
            dict(self._inputs),
            dict(self._outputs),
            dict(self._states),
            dict(self._axes),
            quantum,
        )

    def _reads_before_writes(self):
        written = {name for node in self._nodes for name in node.writes}
        return [
            (name, node.site) for node in self._nodes for name in node.reads if name not in written
        ]


def _key(op, inputs, weights, attrs) -> tuple:
    """What makes two pure ops the same one."""

    def part(x):
        if isinstance(x, Value):
            return x.root.id, x.shape, x.offset, x.strides
        if isinstance(x, Const):
            return x.array.shape, x.array.tobytes()
        if isinstance(x, np.ndarray):
            return x.shape, x.tobytes()
        return x

    return (
        op,
        tuple(part(x) for x in inputs),
        tuple((w.name, w.shape, w.data.ctypes.data) for w in weights),
        tuple((name, part(value)) for name, value in sorted(attrs.items())),
    )


__all__ = ["OPS", "Builder", "Const", "Dim", "Extent", "Node", "ProgramError", "Value"]
