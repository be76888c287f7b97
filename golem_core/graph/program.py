"""The finished program: a flat list of ops, its inputs, states and named outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from golem_core.graph.values import Const, Value, show
from golem_core.graph.weights import Weight
from golem_core.state.declare import Matrix, Ring, Window

State = Ring | Matrix | Window


@dataclass(eq=False)
class Node:
    """One op of a program.

    inputs: values and constants in the op's own order, None for an operand left out.
    weights: the matrices it multiplies or reads rows of. attrs: its parameters. reads, writes:
    names of the states it touches. site: where it was written, for errors and profiles.
    """

    op: str
    inputs: tuple[Value | Const | None, ...]
    attrs: dict[str, Any]
    weights: tuple[Weight, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    site: str
    outputs: tuple[Value, ...] = ()

    def __repr__(self) -> str:
        made = ", ".join(repr(v) for v in self.outputs)
        used = ", ".join("-" if v is None else getattr(v, "name", repr(v)) for v in self.inputs)
        held = "".join(f", {w.name} {show(w.shape)} {w.type.name}" for w in self.weights)
        return f"{made} = {self.op}({used}{held})"


@dataclass(eq=False)
class Program:
    """What a model computes in one pass; executors run it, nothing changes it
    before it is forgotten.

    nodes: in an order in which every operand is made before it is used and state effects keep
    the author's order. axes: the symbols with the maxima they were declared with. quantum: a
    prompt that takes several passes is cut at multiples of it.
    """

    name: str
    nodes: Sequence[Node]
    inputs: dict[str, Value]
    outputs: dict[str, Value]
    states: dict[str, State]
    axes: dict[str, int]
    quantum: int = 1
    weights: dict[str, Weight] = field(init=False)

    def __post_init__(self):
        self.weights = {w.name: w for node in self.nodes for w in node.weights}

    def forget(self) -> None:
        """Lets go of nodes and weights, and so of the file they are views of: it runs no more."""
        self.nodes, self.weights = (), {}
        self.inputs, self.outputs = {}, {}  # values know the nodes that make them

    @property
    def tables(self) -> dict[str, Weight]:
        """The weights that only give rows: an executor reads those rows where the file has them."""
        used = {w.name for node in self.nodes if node.op != "rows" for w in node.weights}
        return {name: w for name, w in self.weights.items() if name not in used}

    @property
    def window(self) -> int:
        """The largest sliding window of any ring, 0 when every ring is full."""
        return max((s.window or 0 for s in self.states.values() if isinstance(s, Ring)), default=0)

    def __str__(self) -> str:
        return "\n".join(f"{node.site:24} {node!r}" for node in self.nodes)
