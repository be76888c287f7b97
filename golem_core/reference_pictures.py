"""The meaning, in numpy, of the ops over maps."""

from __future__ import annotations

import numpy as np


def conv2d(ex, node, binding, x):
    """Tap by tap: the pixels each one sees, times its matrix."""
    (w,), a = node.weights, node.attrs
    (high, wide), pad, stride = a["size"], a["pad"], a["stride"]
    x = np.repeat(np.repeat(x, a["up"], axis=0), a["up"], axis=1)
    x = np.pad(x, ((pad, pad), (pad, pad), (0, 0)))
    rows = max((x.shape[0] - high) // stride + 1, 0)
    columns = (x.shape[1] - wide) // stride + 1
    kernel = ex.weight(w).reshape(w.out, high, wide, -1)
    y = np.zeros((rows, columns, w.out), np.float32)
    for i in range(high):
        for j in range(wide):
            seen = x[i : i + stride * rows : stride, j : j + stride * columns : stride]
            y += seen[:rows, :columns] @ kernel[:, i, j].T
    return y if w.bias is None else y + w.bias
