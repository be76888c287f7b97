"""``golem-inspect``: what a model file holds, without loading it.

Everything printed comes out of a file that may be hostile, so text is escaped and cut short.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.formats.gguf import GGUF, FormatError
from golem_core.formats.safetensors import Safetensors
from golem_core.model.about import why_not
from golem_core.model.embedder import why_no_vectors
from golem_server.commands import Flags, run
from golem_server.stderr import say

PROGRAM = "golem-inspect"
_SHOWN_ITEMS = 6  # of an array
_SHOWN_CHARACTERS = 72  # of a text


@dataclass(frozen=True)
class TensorLine:
    """A tensor: name, type, shape (outermost first), weights and bytes."""

    name: str
    type: str
    shape: tuple[int, ...]
    weights: int
    bytes: int


@dataclass(frozen=True)
class Contents:
    """A model file: ``metadata`` is key -> (type, value), ``facts`` the rest of the header.

    reason: why no chat can be served from it, "" where one can, None where nobody has looked.
    no_vectors: the same of vectors; None for what is no encoder.
    """

    paths: tuple[Path, ...]
    format: str
    facts: dict[str, int]
    metadata: dict[str, tuple[str, Any]]
    tensors: list[TensorLine]
    reason: str | None = None
    no_vectors: str | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    options = parser().parse_args(argv)
    try:
        with _open(options.file) as file:
            contents = _contents(file)
            if options.key:
                print(_full(contents, options.key))
            elif options.json:
                print(json.dumps(_as_json(contents, options), indent=1))
            else:
                for line in _lines(contents, options):
                    print(line)
    except FormatError as error:
        say(f"{PROGRAM}: {_printable(str(error))}")
        return 1
    except BrokenPipeError:
        raise
    except OSError as error:  # a full device
        say(f"{PROGRAM}: {_printable(error.filename or 'standard output')}: {error.strerror}")
        return 1
    return 0


def parser() -> Flags:
    """The command's flags."""
    made = Flags(
        prog=PROGRAM,
        description="Show what a GGUF or safetensors model holds: metadata, tensors, types, sizes.",
        epilog="Without --metadata, --tensors or --types all three are shown.",
    )
    made.add_argument("file", help="a .gguf, .safetensors or .index.json file, or a folder")
    for name, text in (
        ("metadata", "show the metadata"),
        ("tensors", "show the tensors"),
        ("types", "show the types with their shares, and the totals"),
        ("json", "print one JSON object"),
    ):
        made.add_argument(f"--{name}", f"-{name}", action="store_true", help=text)
    made.add_argument("--key", "-key", metavar="KEY", help="print one metadata value in full")
    return made


def _open(path: str) -> GGUF | Safetensors:
    if not path:
        raise FormatError("which file? its name is empty")
    name = Path(path)
    if name.is_dir() or name.suffix in (".safetensors", ".json"):
        return Safetensors.open(name)
    return GGUF.open(name)


def _contents(file: GGUF | Safetensors) -> Contents:
    if isinstance(file, GGUF):
        keys = {}
        for key, value in file.metadata.items():
            type = file.metadata.type_name(key)
            keys[key] = type, _single(value) if type == "f32" else value
        return Contents(
            file.paths,
            "GGUF",
            {"version": file.version, "alignment": file.alignment},
            keys,
            [
                TensorLine(t.name, t.type.name, t.shape, math.prod(t.shape), t.nbytes)
                for t in file.tensors.values()
            ],
            why_not(file),
            why_no_vectors(file),
        )
    return Contents(
        file.paths,
        "safetensors",
        {},
        {key: ("str", value) for key, value in file.metadata.items()},
        [
            TensorLine(t.name, t.dtype, t.shape, math.prod(t.shape), t.nbytes)
            for t in file.tensors.values()
        ],
    )


def _lines(contents: Contents, options: argparse.Namespace) -> Iterator[str]:
    everything = not (options.metadata or options.tensors or options.types)
    facts = ", ".join(f"{name} {value}" for name, value in contents.facts.items())
    yield f"{_printable(str(contents.paths[0]))}: {contents.format}" + (facts and f", {facts}")
    for path in contents.paths[1:]:
        yield f"  and {_printable(path.name)}"
    if contents.reason is not None:
        reason = contents.reason and f"cannot be played: {_printable(contents.reason)}"
        yield reason or "can be played"
    if contents.no_vectors is not None:
        reason = contents.no_vectors and f"gives no vectors: {_printable(contents.no_vectors)}"
        yield reason or "gives vectors"
    if options.metadata or everything:
        yield f"\nmetadata: {len(contents.metadata)} keys"
        rows = [
            (_printable(key), type, _short(value))
            for key, (type, value) in contents.metadata.items()
        ]
        yield from _table(rows, "<<<")
    if options.tensors or everything:
        yield f"\ntensors: {len(contents.tensors)}"
        yield from _table([_tensor_row(tensor) for tensor in contents.tensors], "<<<>")
    if options.types or everything:
        yield "\ntypes"
        yield from _table(
            [
                (
                    name,
                    f"{n} tensor{'s' * (n != 1)}",
                    f"{weights:,} weights",
                    _size(size),
                    f"{bits:.2f} bits",
                )
                for name, n, weights, size, bits in _by_type(contents)
            ],
            "<>>>>",
        )
        weights, size = _totals(contents)
        yield (
            f"\ntotal: {weights:,} parameters, {_size(size)} of tensors in files of "
            f"{_size(_file_bytes(contents))}"
        )


def _tensor_row(tensor: TensorLine) -> tuple[str, ...]:
    shape = " x ".join(str(extent) for extent in tensor.shape) or "scalar"
    return _printable(tensor.name), tensor.type, shape, _size(tensor.bytes)


def _table(rows: list[tuple[str, ...]], align: str) -> Iterator[str]:
    """Lines with the columns under each other, ``<`` to the left and ``>`` to the right."""
    widths = [min(60, max(map(len, column))) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{c:{a}{w}}" for c, a, w in zip(row, align, widths, strict=True))
        yield ("  " + "  ".join(cells)).rstrip()


def _by_type(contents: Contents) -> list[tuple[str, int, int, int, float]]:
    """(type, tensors, weights, bytes, bits of a weight), the largest share first."""
    groups: dict[str, list[int]] = {}
    for tensor in contents.tensors:
        group = groups.setdefault(tensor.type, [0, 0, 0])
        group[0] += 1
        group[1] += tensor.weights
        group[2] += tensor.bytes
    rows = [(name, n, w, b, 8 * b / w if w else 0.0) for name, (n, w, b) in groups.items()]
    return sorted(rows, key=lambda row: -row[3])


def _totals(contents: Contents) -> tuple[int, int]:
    """Weights and bytes of all tensors."""
    return sum(t.weights for t in contents.tensors), sum(t.bytes for t in contents.tensors)


def _file_bytes(contents: Contents) -> int:
    return sum(path.stat().st_size for path in contents.paths)


def _as_json(contents: Contents, options: argparse.Namespace) -> dict[str, Any]:
    everything = not (options.metadata or options.tensors or options.types)
    weights, size = _totals(contents)
    shown: dict[str, Any] = {
        "files": [str(path) for path in contents.paths],
        "format": contents.format,
        **contents.facts,
    }
    if contents.reason is not None:  # as the key "golem" of /api/tags tells it
        shown["golem"] = {"playable": not contents.reason, "reason": contents.reason}
    if options.metadata or everything:
        shown["metadata"] = {
            key: {"type": type, **_json_value(value)}
            for key, (type, value) in contents.metadata.items()
        }
    if options.tensors or everything:
        shown["tensors"] = [
            {
                "name": tensor.name,
                "type": tensor.type,
                "shape": tensor.shape,
                "parameters": tensor.weights,
                "bytes": tensor.bytes,
            }
            for tensor in contents.tensors
        ]
    if options.types or everything:
        shown["types"] = {
            name: {"tensors": n, "parameters": w, "bytes": b, "bits": round(bits, 4)}
            for name, n, w, b, bits in _by_type(contents)
        }
    return shown | {"parameters": weights, "bytes": size, "file_bytes": _file_bytes(contents)}


def _json_value(value: Any) -> dict[str, Any]:
    """A value for JSON; a long array gives its length and its first elements."""
    if not _is_array(value):
        return {"value": _plain(value)}
    if len(value) <= 64:
        return {"value": _plain(value)}
    return {"count": len(value), "first": _plain(value[:_SHOWN_ITEMS])}


def _full(contents: Contents, key: str) -> str:
    """One value complete: text as it is, everything else as JSON."""
    if key not in contents.metadata:
        raise FormatError(f"{contents.paths[0]}: has no metadata key {key}")
    value = contents.metadata[key][1]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    """A value made of what JSON has: lists, and text in place of numbers that are not finite."""
    if isinstance(value, np.ndarray) and value.dtype == np.float32:
        return [_plain(_single(item)) for item in value]
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if _is_array(value):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _single(value: float) -> float:
    """The shortest decimal that is the same f32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _is_array(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def _short(value: Any) -> str:
    """A value on one line, long ones cut."""
    if _is_array(value):
        first = ", ".join(_short(item) for item in _plain(value[:_SHOWN_ITEMS]))
        return f"[{first}{', …' if len(value) > _SHOWN_ITEMS else ''}]"
    if not isinstance(value, str):
        return json.dumps(_plain(value))
    cut = value[:_SHOWN_CHARACTERS]
    return _printable(json.dumps(cut, ensure_ascii=False)) + ("…" if cut != value else "")


def _printable(text: str) -> str:
    """Text whose control characters and stray bytes cannot reach the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _size(count: int) -> str:
    """Bytes for people: 93.8 MiB."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.1f} {unit}" if unit != "B" else f"{count} B"
        amount /= 1024
    return f"{amount:.1f} TiB"


if __name__ == "__main__":
    sys.exit(run("golem_server.inspect", PROGRAM))
