"""The rotations PrismML's files were folded with: read from their header, or the file is refused.

Ternary weights lose less when the vectors they multiply are spread out first, so these matrices
were stored for rotated inputs, and the header says which and how. Left out, a model still writes
fluent nonsense: so every key is checked, and a value that is not known here is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from golem_core.graph.weights import Rotation
from golem_core.model.hyper import Hyper

PREFIX = "prism.hadamard."
_FIXED = {
    "version": 1,
    "transform": "normalized-sylvester-walsh-hadamard",
    "axis": "input-last-dimension",
}
_OTHERS = ("block_size", "sign_mode", "sign_widths", "sign_values", "weight_names")
_OTHERS += ("inverse_weight_names", "gdn_v_grouped")


def rotations_of(hyper: Hyper, tensors: Mapping[str, Any]) -> dict[str, Rotation]:
    """The rotation of every matrix that has one, by its name. Raises ModelError."""
    given = {k.removeprefix(PREFIX) for k in hyper.metadata if k.startswith(PREFIX)}
    if not given:
        return {}
    for key in sorted(given - set(_FIXED) - set(_OTHERS)):
        raise hyper.fail(f".{PREFIX}{key}", f"no such key beside {', '.join((*_FIXED, *_OTHERS))}")
    for key, wanted in _FIXED.items():
        get = hyper.integer if isinstance(wanted, int) else hyper.text
        if get(f".{PREFIX}{key}") != wanted:
            raise hyper.fail(f".{PREFIX}{key}", f"{wanted!r}, the only one golem knows,")
    block = hyper.integer(f".{PREFIX}block_size", high=1 << 16)
    if block & (block - 1):
        raise hyper.fail(f".{PREFIX}block_size", "a power of two")
    signs = _signs(hyper)
    turned = _turned(hyper) if hyper.flag(f".{PREFIX}gdn_v_grouped", False) else None
    made: dict[tuple, Rotation] = {}
    found = {}
    for key in ("weight_names", "inverse_weight_names"):
        for name in _names(hyper, key):
            width = tensors[name].shape[-1] if name in tensors else 0
            if not width or width % block or (signs is not None and width not in signs):
                raise hyper.fail(
                    f".{PREFIX}{key}",
                    f"names of matrices whose rows are blocks of {block} and have signs, unlike "
                    f"{name[:64]!r},",
                )
            order = turned if name.endswith(".ssm_out.weight") else None
            chosen = None if signs is None else signs[width]
            rotation = Rotation("sylvester", block, chosen, order)
            found[name] = made.setdefault((width, order), rotation)
    return found


def _names(hyper: Hyper, key: str) -> list[str]:
    names = hyper.metadata.get(PREFIX + key)
    if not hyper.is_array(f".{PREFIX}{key}") or not all(isinstance(n, str) for n in names):
        raise hyper.fail(f".{PREFIX}{key}", "a list of tensors' names")
    return list(names)


def _signs(hyper: Hyper) -> dict[int, np.ndarray] | None:
    """(width,) f32 of +1 and -1 for every width; None where all are +1."""
    mode = hyper.text(f".{PREFIX}sign_mode")
    if mode == "identity":
        return None
    if mode != "explicit":
        raise hyper.fail(f".{PREFIX}sign_mode", "explicit or identity")
    widths, values = (
        np.asarray(hyper.metadata.get(f"{PREFIX}sign_{part}", ())) for part in ("widths", "values")
    )
    if widths.ndim != 1 or widths.dtype.kind not in "iu" or len(widths) == 0 or widths.min() < 1:
        raise hyper.fail(f".{PREFIX}sign_widths", "a list of widths")
    right = values.ndim == 1 and values.dtype.kind in "iuf" and len(values) == widths.sum()
    if not right or not (np.abs(values.astype(np.float32)) == 1).all():
        raise hyper.fail(f".{PREFIX}sign_values", f"{widths.sum()} numbers that are 1 or -1")
    ends = np.cumsum(widths)
    parts = np.split(values.astype(np.float32), ends[:-1])
    return dict(zip(widths.tolist(), parts, strict=True))


def _turned(hyper: Hyper) -> tuple[int, int, int]:
    """How a delta net's heads lie in this file, for a fold that knew them grouped by key head."""
    keys, values = hyper.integer("ssm.group_count"), hyper.integer("ssm.time_step_rank")
    if values % keys:
        raise hyper.fail("ssm.time_step_rank", f"a multiple of the {keys} groups")
    return values // keys, keys, hyper.integer("ssm.state_size")
