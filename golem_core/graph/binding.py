"""What a pass binds to a program, checked before anything runs.

Every executor takes the same inputs and refuses the same mistakes here, so that nothing a caller
passes can reach memory that is not its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from golem_core.graph.program import Program
from golem_core.graph.values import Dim, ProgramError, Value, extent_at, show

DTYPES = {"f32": np.float32, "i32": np.int32}
DRAWN, PROMPT = 0, 1  # the role of a run


@dataclass(frozen=True)
class Binding:
    """sizes: the symbols of this pass. arrays: its inputs, C-contiguous, by name.

    runs: (r, 5) i32 [slot, first column, count, index of the first column, role].
    """

    sizes: dict[str, int]
    arrays: dict[str, np.ndarray]
    runs: np.ndarray


def bind(
    program: Program,
    inputs: Mapping[str, np.ndarray],
    *,
    slots: int,
    context: int,
    maxima: Mapping[str, int],
) -> Binding:
    """Checks the inputs of a pass and derives ``index`` and ``positions`` from its runs.

    Raises ProgramError naming the input that is missing, unknown, misshapen or out of range.
    """
    inputs = dict(inputs)
    columns = maxima.get("n", program.axes.get("n", 0))
    runs = _runs(inputs.pop("runs", None), slots, context, columns)
    if runs is not None:
        inputs["index"] = np.concatenate(
            [np.arange(i, i + count) for _, _, count, i, _ in runs.tolist()]
        )
    if "positions" in program.inputs and "positions" not in inputs and "index" in inputs:
        shape = program.inputs["positions"].shape
        inputs["positions"] = np.broadcast_to(
            inputs["index"].reshape((-1,) + (1,) * (len(shape) - 1)),
            (len(inputs["index"]), *shape[1:]),
        )
    _absent_media(program, inputs)
    if program.states and runs is None:
        raise ProgramError('program keeps states but the pass binds no "runs"')
    if program.states and "n" not in program.axes:
        raise ProgramError('program keeps states but no axis "n" says how many columns it has')
    # The runs say how many columns there are; an input that has more or fewer is the wrong one.
    sizes = {} if runs is None or "n" not in program.axes else {"n": int(runs[:, 2].sum())}
    arrays = {}
    for name, value in program.inputs.items():
        if name not in inputs:
            raise ProgramError(f'program reads input "{name}" but the pass binds no such array')
        arrays[name] = _array(value, inputs[name], name)
        _solve(value, arrays[name], name, sizes)
    for symbol in program.axes:
        most = maxima.get(symbol, program.axes[symbol])
        if sizes.setdefault(symbol, 0) > most:
            raise ProgramError(f"{symbol} = {sizes[symbol]}, and this executor was made for {most}")
    for name, value in program.inputs.items():
        if arrays[name].shape[0] != extent_at(value.rows, sizes):
            raise ProgramError(
                f'input "{name}" has {arrays[name].shape[0]} rows where the pass has '
                f"{extent_at(value.rows, sizes)}"
            )
    _ranges(program, arrays, sizes)
    empty = np.zeros((0, 5), np.int32)
    return Binding(sizes, arrays, empty if runs is None else runs)


def _absent_media(program: Program, inputs: dict) -> None:
    """What a pass of text leaves out: no rows, no column that is one, none that looks ahead."""
    if "index" not in inputs:
        return
    if "until" in program.inputs:
        inputs.setdefault("until", inputs["index"])
    if "place" in program.inputs and "place" not in inputs and "embeddings" not in inputs:
        inputs["place"] = np.full(len(inputs["index"]), -1, np.int32)
        inputs["embeddings"] = np.zeros((0, *program.inputs["embeddings"].inner), np.float32)


def _array(value: Value, given, name: str) -> np.ndarray:
    array = np.asarray(given)
    if array.ndim != len(value.shape) or array.shape[1:] != value.inner:
        raise ProgramError(f'input "{name}" is {show(array.shape)}, wanted {show(value.shape)}')
    if value.dtype == "i32" and array.dtype.kind not in "iu":
        raise ProgramError(f'input "{name}" is {array.dtype}, wanted integers')
    return np.ascontiguousarray(array, DTYPES[value.dtype])


def _solve(value: Value, array: np.ndarray, name: str, sizes: dict[str, int]) -> None:
    """Learns a symbol from the rows of an input whose extent is ``factor · symbol + const``."""
    rows = value.rows
    if not isinstance(rows, Dim) or len(rows.terms) != 1 or rows.divisor != 1:
        return
    ((symbol, factor),) = rows.terms
    size, rest = divmod(array.shape[0] - rows.const, factor)
    if rest or size < 0 or sizes.setdefault(symbol, size) != size:
        known = sizes.get(symbol)
        raise ProgramError(
            f'input "{name}" has {array.shape[0]} rows, which is no {rows} with {symbol} = {known}'
        )


def _runs(runs, slots: int, context: int, columns: int) -> np.ndarray | None:
    if runs is None:
        return None
    runs = np.ascontiguousarray(runs, np.int32)
    if runs.ndim != 2 or runs.shape[1] != 5 or len(runs) == 0:
        raise ProgramError(f"runs is {show(runs.shape)}, wanted (r, 5) with at least one run")
    slot, first, count, index, role = runs.T.astype(np.int64)
    for at in np.flatnonzero((slot < 0) | (slot >= slots)):
        raise ProgramError(f"run {at} is of slot {slot[at]}; there are {slots}")
    if len(np.unique(slot)) != len(runs):
        raise ProgramError("a slot has at most one run a pass")
    if (count < 1).any() or (first != np.cumsum(count) - count).any():
        raise ProgramError("runs are not consecutive columns from column 0 on")
    if ((role != DRAWN) & (role != PROMPT)).any() or (np.diff(role) < 0).any():
        raise ProgramError("drawn runs (role 0) come before prompt runs (role 1)")
    for at in np.flatnonzero((index < 0) | (index + count > context)):
        raise ProgramError(
            f"run {at} covers index {index[at]} to {index[at] + count[at] - 1}; "
            f"a slot holds 0 to {context - 1}"
        )
    if count.sum() > columns:
        raise ProgramError(f"n = {count.sum()}, and this executor was made for {columns}")
    return runs


def _ranges(program: Program, arrays: dict[str, np.ndarray], sizes: dict[str, int]) -> None:
    """Ids that select rows lie inside what they select from."""
    for node in program.nodes:
        if node.op == "rows":
            _within(node, node.inputs[0], min(w.shape[0] for w in node.weights), arrays)
        elif node.op == "pick":
            _within(node, node.inputs[1], extent_at(node.inputs[0].rows, sizes), arrays)
        elif node.op == "overlay":
            _within(node, node.inputs[2], extent_at(node.inputs[1].rows, sizes), arrays, low=-1)
        elif node.op == "attend" and node.inputs[3] is not None:
            _within(node, node.inputs[3], 1 << 30, arrays)
    for name in ("offsets",):
        if name in arrays:
            offsets = arrays[name]
            if len(offsets) < 1 or offsets[0] != 0 or (np.diff(offsets) < 0).any():
                raise ProgramError(f'"{name}" must rise from 0')
            if "n" in sizes and offsets[-1] != sizes["n"]:
                raise ProgramError(f'"{name}" ends at {offsets[-1]}, the pass has n = {sizes["n"]}')


def _within(node, value: Value, limit: int, arrays: dict[str, np.ndarray], low: int = 0) -> None:
    """Checks ids that are an input themselves; computed ones (route) are right by construction."""
    name = value.root.name
    if name in arrays and arrays[name].size:
        got = arrays[name]
        if got.min() < low or got.max() >= limit:
            raise ProgramError(
                f'{node.site}: input "{name}" holds {got.min()} to {got.max()}, '
                f"allowed are {low} to {limit - 1}"
            )
