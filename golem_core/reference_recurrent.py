"""The meaning, in numpy, of the ops that run along the columns of a conversation."""

from __future__ import annotations

import numpy as np

F32 = np.float32


def conv1d(ex, node, binding, x, w, bias):
    """Row by row: the taps of every output, with what lies before the rows in front of them."""
    a = node.attrs
    before, stride, groups = a["before"], a["stride"], a["groups"]
    out, each, taps = w.shape
    made = []
    for rows, slot, first in _sequences(binding, len(x), a["rate"]):
        state = None if a["window"] is None else ex.states.windows[a["window"]][slot]
        past = np.zeros((before, x.shape[1]), F32)
        if state is not None and not first:
            past = state.copy()
        elif a["start"] == "first" and rows.stop > rows.start:
            past = np.repeat(x[rows][:1], before, axis=0)
        whole = np.concatenate([past, x[rows]])
        if state is not None:
            state[...] = whole[len(whole) - before :]
        for o in range((rows.stop - rows.start) // stride):
            seen = whole[o * stride + np.arange(taps) * a["dilation"]]  # (taps, in)
            seen = seen.reshape(taps, groups, each)
            kernel = w.reshape(groups, out // groups, each, taps)
            made.append(np.einsum("jgi,goij->go", seen, kernel).reshape(out))
    y = np.array(made, F32).reshape(-1, out)
    return y if bias is None else y + bias


def delta_rule(ex, node, binding, q, k, v, decay, beta):
    """Column by column, all value heads at once."""
    keys, count = k.shape[1], v.shape[1]
    head = np.arange(count)
    head = head * keys // count if node.attrs["grouped"] else head % keys
    y = np.empty_like(v)
    for rows, slot, first in _sequences(binding, len(v), 1):
        m = ex.states.matrices[node.attrs["matrix"]][slot]  # (NV, Sv, S)
        if first:
            m[...] = 0
        for c in range(rows.start, rows.stop):
            m *= np.exp(decay[c])[:, None, None]
            d = beta[c][:, None] * (v[c] - np.einsum("hvs,hs->hv", m, k[c, head]))
            m += d[:, :, None] * k[c, head][:, None]
            y[c] = np.einsum("hvs,hs->hv", m, q[c, head]) * F32(node.attrs["scale"])
    return y


def _sequences(binding, rows: int, rate: int):
    """(rows, slot, whether it starts at index 0) of every sequence; without a rate there is one."""
    if not rate:
        yield slice(0, rows), 0, True
        return
    for slot, column, count, index, _ in binding.runs.tolist():
        yield slice(column * rate, (column + count) * rate), slot, index == 0
