"""safetensors files, shards and indexes with damaged lengths, JSON and data.

A case writes a damaged file, opens it and decodes every tensor. The checkpoint must be accepted,
or refused with a `FormatError` of one line that names the file.
"""

import json
import random
import re
import struct
from pathlib import Path

import numpy as np

from golem_core.formats.safetensors import DTYPES, FormatError, Safetensors
from tests.fuzz.harness import Case
from tests.fuzz.mutate import damage

_VALUES = [b"0", b"-1", b"1", b"8", b"4294967296", b"18446744073709551615", b"1" * 40, b"1e3"]
_VALUES += [b"null", b"true", b"[]", b"{}", b'""', b"[1,2", b"NaN", b"[" * 2000, b'{"a":' * 2000]
_VALUES += [b'"F32"', b'"BF16"', b'"F64"', b'"\\ud800"', b"[0,0]", b"[2,-2]", b'"../x"', b"0.5"]


def prepare(folder: Path) -> Case:
    """Write the sound files into ``folder``; each case damages one of them."""
    seeds = [(path, entry, path.read_bytes()) for path, entry in _sound_files(folder)]
    donors = [data for _, _, data in seeds]

    def case(rng: random.Random) -> bool:
        path, entry, data = rng.choice(seeds)
        if rng.random() < 0.6:
            damaged = _damage_json(data, path.suffix == ".json", rng)
        else:
            fields = [] if path.suffix == ".json" else [(0, 8)]
            damaged = damage(data, fields, donors, rng)
        path.write_bytes(damaged)
        try:
            return examine(entry)
        finally:
            if entry.suffix == ".json":  # another case may need this part to be sound
                path.write_bytes(data)

    return case


def examine(path: Path) -> bool:
    """Open a checkpoint and decode all of it; False when it is refused as it should be."""
    try:
        with Safetensors.open(path) as checkpoint:
            for name, tensor in checkpoint.tensors.items():
                values = checkpoint.numpy(name)
                assert values.shape == tensor.shape
                assert values.nbytes <= 4 * tensor.nbytes
            assert not checkpoint.changed()
    except FormatError as error:
        text = str(error)
        assert "\n" not in text and len(text) < 1000, text
        assert text.startswith(f"{path.parent}/"), text
        return False
    return True


def _damage_json(data: bytes, bare: bool, rng: random.Random) -> bytes:
    """Exchange one to three JSON values, keeping the length of the header right."""
    length = len(data) - 8 if bare else struct.unpack_from("<Q", data)[0]
    start = 0 if bare else 8
    header = data[start : start + (len(data) if bare else length)]
    for _ in range(rng.choice((1, 1, 2, 3))):
        spans = [m.span() for m in re.finditer(rb"-?\d+|\"[^\"]*\"|\[[^\[\]]*\]", header)]
        if not spans:
            break
        (first, last), (other, end) = rng.choice(spans), rng.choice(spans)
        new = rng.choice((header[other:end], rng.choice(_VALUES)))
        header = header[:first] + new + header[last:]
    return header if bare else struct.pack("<Q", len(header)) + header + data[8 + length :]


def _sound_files(folder: Path) -> list[tuple[Path, Path]]:
    """(file to damage, file to open): every dtype, and two shards with their index."""
    every = {f"t.{name}": (name, (3, 2)) for name in DTYPES}
    odd = {"scalar": ("F32", ()), "none": ("I64", (0, 4)), "deep": ("U8", (1, 2, 1, 3, 1))}
    files = [folder / "every.safetensors", folder / "odd.safetensors"]
    write(files[0], every, {"format": "pt"})
    write(files[1], odd, {})
    shards = [folder / f"shard-{i}.safetensors" for i in (1, 2)]
    for shard, name in zip(shards, ("a", "b"), strict=True):
        write(shard, {name: ("F16", (4,))}, {})
    index = folder / "model.safetensors.index.json"
    index.write_text(
        json.dumps({"metadata": {}, "weight_map": {"a": shards[0].name, "b": shards[1].name}})
    )
    return [(file, file) for file in files] + [(part, index) for part in (*shards, index)]


def write(
    path: Path, tensors: dict[str, tuple[str, tuple[int, ...]]], metadata: dict[str, str]
) -> None:
    """Write a checkpoint of random bytes: name -> (dtype, shape)."""
    header: dict = {"__metadata__": metadata} if metadata else {}
    data = b""
    rng = np.random.default_rng(len(tensors))
    for name, (dtype, shape) in tensors.items():
        size = int(np.prod(shape, dtype=int)) * DTYPES[dtype].itemsize
        header[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [len(data), len(data) + size],
        }
        data += rng.bytes(size)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
