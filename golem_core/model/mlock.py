"""Keeping a model in memory: the system may not write its pages out or drop them.

What is read in every pass is locked: the weights in whatever layout they are used, and the states
of every slot. Unlocking is closing: a page that goes is locked no more.
"""

import ctypes
import logging
import os
import resource
from collections.abc import Iterator
from typing import Any

import numpy as np

from golem_core.graph.program import Program

log = logging.getLogger("golem.model")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def lock(executor: Any, program: Program) -> bool:
    """Locks what an executor works on; warns and returns False when the system does not let it."""
    regions = list(_regions(executor, program))
    for address, nbytes in regions:
        if _libc.mlock(address, nbytes):
            _warn(os.strerror(ctypes.get_errno()), sum(size for _, size in regions))
            return False
    return True


def _regions(executor: Any, program: Program) -> Iterator[tuple[int, int]]:
    """Address and bytes of everything that a pass reads again and again."""
    found = {a.ctypes.data: a.nbytes for a in executor.states.memory}
    store = getattr(executor, "weights", None)  # the reference executor reads the file's blocks
    for node in program.nodes:
        for weight in node.weights:
            if store is not None and node.op in ("linear", "linear_by_expert"):
                matrix = store[weight]
                found[matrix.address] = matrix.bytes
            else:
                found[weight.data.ctypes.data] = _spread(weight.data)
    yield from found.items()


def _spread(array: np.ndarray) -> int:
    """Bytes from the first element of an array to the end of its last."""
    steps = zip(array.shape, array.strides, strict=True)
    return sum((size - 1) * stride for size, stride in steps) + array.itemsize


def _warn(why: str, wanted: int) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft >> 10} KiB"
    needed = -(-wanted >> 10)
    log.warning(
        "-mlock: the system does not keep the model in memory (%s), so it may be swapped out; "
        "%d KiB are needed and the limit is %s: raise it with ulimit -l %d, or with LimitMEMLOCK= "
        "in a systemd unit",
        why,
        needed,
        limit,
        needed,
    )
