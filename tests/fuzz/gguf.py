"""GGUF files with damaged headers, values and tensors, whole and split.

A case writes a damaged file, opens it, reads every value and decodes the first rows of every
tensor. The file must be accepted, or refused with a `FormatError` of one line that names it.
"""

import os
import random
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.formats.blocks import TYPES, by_name, dequantise, random_blocks
from golem_core.formats.gguf import GGUF, FormatError, write_gguf
from tests.fuzz.harness import Case
from tests.fuzz.mutate import Field, damage

_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_FIXTURES = ("gemma_qwen/gguf/mmproj_gemma4_unified.gguf", "edges/tiny-qwen3-vocab320.gguf")


def prepare(folder: Path) -> Case:
    """Write the sound files into ``folder``; each case damages one of them."""
    seeds = [(path, entry, path.read_bytes()) for path, entry in _sound_files(folder)]
    fields = [header_fields(data) for _, _, data in seeds]
    donors = [data[:65536] for _, _, data in seeds]

    def case(rng: random.Random) -> bool:
        which = rng.choices(range(len(seeds)), [16 if len(d) < 50_000 else 1 for d in donors])[0]
        path, entry, data = seeds[which]
        path.write_bytes(damage(data, fields[which], donors, rng))
        try:
            return examine(entry)
        finally:
            if path.name.startswith("split"):  # another case may need this part to be sound
                path.write_bytes(data)

    return case


def examine(path: Path) -> bool:
    """Open a file and use all of it; False when it is refused as it should be."""
    try:
        with GGUF.open(path) as model:
            for key, value in model.metadata.items():
                model.metadata.type_name(key)
                touch(value)
            for tensor in model.tensors.values():
                rows = tensor.data.reshape(-1, tensor.data.shape[-1])[:2]
                dequantise(rows, tensor.type)
            assert model.n_params >= len(model.tensors)
            assert model.size_bytes <= sum(os.path.getsize(part) for part in model.paths)
            assert not model.changed()
            model.architecture  # noqa: B018
    except FormatError as error:
        text = str(error)
        assert "\n" not in text and len(text) < 1000, text
        assert text.startswith(f"{path.parent}/"), text
        return False
    return True


def touch(value: Any, depth: int = 0) -> None:
    """Read a value; of long arrays both ends, and all of the elements when they are few."""
    if isinstance(value, str | int | float | bool):
        return
    if isinstance(value, np.ndarray):
        value[:16].tolist(), value[-16:].tolist()
        return
    assert isinstance(value, Sequence) and depth < 9
    for item in (*value[:16], *value[-16:]) if len(value) > 4096 else value:
        touch(item, depth + 1)


def header_fields(data: bytes) -> list[Field]:
    """The integers of a sound header: counts, lengths, types, dimensions, offsets."""
    found: list[Field] = [(4, 4), (8, 8), (16, 8)]
    tensors, keys = struct.unpack_from("<QQ", data, 8)
    at = 24

    def integer(size: int) -> int:
        nonlocal at
        found.append((at, size))
        at += size
        return int.from_bytes(data[at - size : at], "little")

    def skip_text() -> None:
        nonlocal at
        length = integer(8)
        at += length

    def skip_value(kind: int) -> None:
        nonlocal at
        if kind == 8:
            skip_text()
        elif kind == 9:
            element, count = integer(4), integer(8)
            for _ in range(count):
                skip_value(element)
        else:
            at += _WIDTHS[kind]

    for _ in range(keys):
        skip_text()
        skip_value(integer(4))
    for _ in range(tensors):
        skip_text()
        for _ in range(integer(4)):
            integer(8)
        integer(4), integer(8)
    return found


def _sound_files(folder: Path) -> list[tuple[Path, Path]]:
    """(file to damage, file to open) of small files that between them have everything in them."""
    rng = np.random.default_rng(1)
    names = [f"{kind}{size}" for kind in ("uint", "int") for size in (8, 16, 32, 64)]
    scalars = {name: np.dtype(name).type(7) for name in (*names, "float32", "float64")}
    numbers = {f"array.{name}": np.full(3, value) for name, value in scalars.items()}
    words = ["a", "", "wort", "\u00e9\u00e8", "x" * 40, b"\xff\xfe"]
    nested = {"nested": [[1, 2], [3]], "nested.words": [["a", "b"], []], "deep": [[[[1.5]]]]}
    keys = {"general.architecture": "llama", "flag": True, **scalars, **numbers, **nested}
    keys |= {"flags": [True, False], "words": words, "none": [], "words.none": np.zeros(0, "u1")}

    def tensor(name: str, shape: tuple[int, ...], kind: str) -> tuple:
        type = by_name(kind)
        return name, shape, type, random_blocks(shape, type, rng)

    every = [tensor(f"t.{type.name}", (2, type.weights), type.name) for type in TYPES.values()]
    shapes = [tensor("one", (32,), "F32"), tensor("three", (2, 3, 32), "Q8_0")]
    shapes.append(tensor("four", (2, 1, 2, 64), "Q4_0"))
    ternary = [tensor(f"q.{i}", (3, 256), "Q2_0") for i in range(3)]
    files = [
        write_gguf(folder / "values.gguf", keys, []),
        write_gguf(folder / "values2.gguf", keys, shapes, version=2),
        write_gguf(folder / "types.gguf", {"general.architecture": "qwen3"}, every),
        write_gguf(folder / "wide.gguf", {"general.architecture": "x"}, shapes, alignment=8),
        write_gguf(folder / "ternary.gguf", {"general.architecture": "x"}, ternary),
        write_gguf(folder / "empty.gguf", {}, []),
    ]
    split = write_gguf(folder / "split.gguf", {"general.architecture": "x"}, shapes, parts=3)
    second = split.with_name("split-00002-of-00003.gguf")
    pairs = [(file, file) for file in files] + [(split, split), (second, split)]
    return pairs + [(file, file) for file in _fixtures(folder)]


def _fixtures(folder: Path) -> list[Path]:
    """Copies of small files that other programs wrote, where they are at hand."""
    root = os.environ.get("GOLEM_TEST_DATA")
    found = [Path(root) / name for name in _FIXTURES] if root else []
    copies = []
    for path in filter(Path.exists, found):
        copies.append(folder / path.name)
        copies[-1].write_bytes(path.read_bytes())
    return copies
