"""What is no sound GGUF file is refused in one line that says which file, what, and where."""

import os
import struct

import numpy as np
import pytest

from golem_core.formats.blocks import by_name, random_blocks
from golem_core.formats.gguf import GGUF, FormatError, write_gguf

F32 = by_name("F32")


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def header(tensors=0, keys=0, *, version=3, rest=b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest


def key(name: bytes, kind: int, body: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + body


def array(element: int, count: int, body: bytes = b"") -> bytes:
    return struct.pack("<IQ", element, count) + body


def tensor(name=b"t", shape=(4,), kind=0, at=0) -> bytes:
    dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + dims + struct.pack("<IQ", kind, at)


def with_tensors(*infos: bytes, data: int = 64, keys: bytes = b"", n_keys: int = 0) -> bytes:
    """A file of these tensors' headers and ``data`` zero bytes of weights."""
    start = header(len(infos), n_keys, rest=keys + b"".join(infos))
    return start + bytes(-len(start) % 32) + bytes(data)


def nested(depth: int) -> bytes:
    return array(9, 1) * depth + array(4, 0)


BIG = (1 << 64) - 1
CASES = {
    "no magic": (b"GGML" + bytes(60), "is not GGUF: it begins with b'GGML'"),
    "old format": (b"tjgg" + bytes(60), "looks like the GGJT format from before GGUF"),
    "zip": (b"PK\x03\x04" + bytes(60), "looks like a zip archive, as PyTorch writes"),
    "safetensors": (b"\x10" + bytes(7) + b'{"a":1}', "looks like safetensors"),
    "web page": (b"<!DOCTYPE html><html>", "looks like a web page or XML"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\n", "looks like a Git LFS pointer"),
    "three bytes": (b"GGU", "is not GGUF: it begins with b'GGU'"),
    "only magic": (b"GGUF", "ends inside the version at byte 4; the file is cut short"),
    "no counts": (b"GGUF\x03\0\0\0", "ends inside the counts of tensors and keys at byte 8"),
    "version 1": (header(version=1), "is GGUF version 1; golem reads 2 and 3"),
    "version 0": (header(version=0), "is GGUF version 0; golem reads 2 and 3"),
    "version 4": (header(version=4), "is GGUF version 4; golem reads 2 and 3"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "is a big-endian file"),
    "keys": (header(0, BIG), f"declares {BIG} keys, more than its 24 bytes can hold"),
    "tensors": (header(BIG, 0), f"declares {BIG} tensors, more than its 24 bytes can hold"),
    "many keys": (header(0, 200_000, rest=bytes(13 * 200_000)), "golem reads at most 100000"),
    "key length": (header(0, 1, rest=struct.pack("<Q", BIG) + bytes(20)), f"has {BIG} bytes, but"),
    "key cut": (header(0, 1, rest=struct.pack("<Q", 99) + bytes(20)), "a key at byte 32 runs past"),
    "key bytes": (
        header(0, 1, rest=key(b"\xff\xfe", 4, bytes(4))),
        "a key at byte 24 is not UTF-8",
    ),
    "value type": (header(0, 1, rest=key(b"k", 13, bytes(8))), "key 'k' has the unknown type 13"),
    "value cut": (header(0, 1, rest=key(b"k", 10, bytes(7))), "the key 'k' at byte 37 runs past"),
    "text cut": (
        header(0, 1, rest=key(b"k", 8, struct.pack("<Q", BIG))),
        "the string 'k' at byte 45 runs past the end of the file",
    ),
    "array type": (
        header(0, 1, rest=key(b"k", 9, array(77, 1, bytes(8)))),
        "the key 'k' is an array of the unknown value type 77",
    ),
    "array cut": (
        header(0, 1, rest=key(b"k", 9, array(4, 3, bytes(11)))),
        "the key 'k' is an array that runs past the end of the file",
    ),
    "array count": (
        header(0, 1, rest=key(b"k", 9, array(10, BIG))),
        "the key 'k' is an array that runs past",
    ),
    "strings count": (
        header(0, 1, rest=key(b"k", 9, array(8, BIG, bytes(64)))),
        "the key 'k' is an array that runs past",
    ),
    "string in array": (
        header(0, 1, rest=key(b"k", 9, array(8, 2, text(b"a") + struct.pack("<Q", BIG)))),
        "the key 'k' is an array that runs past",
    ),
    "nested cut": (
        header(0, 1, rest=key(b"k", 9, array(9, 1, array(4, BIG)))),
        "the key 'k' is an array that runs past",
    ),
    "nesting": (header(0, 1, rest=key(b"k", 9, nested(9))), "is arrays nested more than 8 deep"),
    "same key": (header(0, 2, rest=key(b"k", 0, b"1") * 2), "the key 'k' occurs twice"),
    "alignment 0": (
        header(0, 1, rest=key(b"general.alignment", 4, bytes(4))),
        "general.alignment is 0, not a power of two",
    ),
    "alignment 12": (
        header(0, 1, rest=key(b"general.alignment", 4, b"\x0c\0\0\0")),
        "general.alignment is 12, not a power of two",
    ),
    "alignment type": (
        header(0, 1, rest=key(b"general.alignment", 8, text(b"32"))),
        "the key general.alignment must be an integer, it is str",
    ),
    "no dimensions": (with_tensors(tensor(shape=())), "tensor 't' has 0 dimensions; 1 to 4"),
    "five dimensions": (with_tensors(tensor(shape=(1,) * 5)), "tensor 't' has 5 dimensions"),
    "many dimensions": (
        with_tensors(text(b"t") + struct.pack("<I", 0xFFFFFFFF) + bytes(40)),
        "tensor 't' has 4294967295 dimensions",
    ),
    "zero dimension": (
        with_tensors(tensor(shape=(4, 0))),
        r"tensor 't' has no elements: its shape is \[0, 4\]",
    ),
    "unknown type": (with_tensors(tensor(kind=500)), "tensor 't': block type number 500 is not"),
    "foreign type": (with_tensors(tensor(kind=19)), r"tensor 't': block type IQ1_S \(19\) is not"),
    "row": (with_tensors(tensor(shape=(48, 2), kind=2)), "a row of 48 weights cannot be Q4_0"),
    "cut tensor": (with_tensors(tensor(shape=(17,))), "tensor 't' ends 4 bytes past the end of"),
    "huge tensor": (
        with_tensors(tensor(shape=(1 << 40, 1 << 40, 1 << 40, 1 << 40))),
        r"tensor 't' ends \d+ bytes past the end of the file; the file is cut short",
    ),
    "far tensor": (with_tensors(tensor(at=1 << 63)), "past the end of the file"),
    "no data": (header(1, 0, rest=tensor()), "tensor 't' ends 16 bytes past the end"),
    "misplaced": (with_tensors(tensor(at=4)), "tensor 't' is at 4, not a multiple of 32"),
    "overlap": (
        with_tensors(tensor(shape=(9,)), tensor(b"u", at=32)),
        "tensor 't' overlaps the one that follows it",
    ),
    "same place": (with_tensors(tensor(), tensor(b"u")), "tensor 't' overlaps"),
    "same name": (with_tensors(tensor(), tensor(at=32)), "two tensors are named 't'"),
    "tensor name": (with_tensors(tensor(b"\xff")), "a tensor's name at byte 24 is not UTF-8"),
    "odd name": (with_tensors(tensor(b"a\nb" * 99, kind=99)), r"tensor 'a\\nba\\nb.*…: block type"),
}


@pytest.mark.parametrize("name", CASES)
def test_unsound_files_are_refused_in_one_line(tmp_path, name):
    contents, expected = CASES[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(contents)
    for mapped in (True, False):
        with pytest.raises(FormatError, match=expected) as caught:
            GGUF.open(path, mapped=mapped)
        line = str(caught.value)
        assert line.startswith(f"{path}: ")
        assert "\n" not in line
        assert len(line) < 500


def test_what_is_no_file_is_refused(tmp_path):
    empty = tmp_path / "empty.gguf"
    empty.touch()
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    for path, expected in (
        (tmp_path, "is a directory; name a model file"),
        (tmp_path / "none.gguf", "cannot be opened: no such file or directory"),
        (empty, "is empty"),
        (pipe, "is not a regular file"),
        ("/dev/null", "is not a regular file"),
        ("a\0b", "cannot be opened: embedded null byte"),
    ):
        with pytest.raises(FormatError, match=expected):
            GGUF.open(path)


def test_every_truncation_of_a_file_is_refused(tmp_path):
    whole = write_gguf(
        tmp_path / "whole.gguf",
        {"general.architecture": "x", "words": ["a", "b"], "ids": [1, 2]},
        [("t", (3,), F32, np.zeros(3, np.float32)), ("u", (9,), F32, np.zeros(9, np.float32))],
    ).read_bytes()
    last = len(whole) - 64 + 36  # the padding after the last tensor may be missing
    cut = tmp_path / "cut.gguf"
    for size in range(last):
        cut.write_bytes(whole[:size])
        with pytest.raises(FormatError):
            GGUF.open(cut)
    cut.write_bytes(whole[:last])
    GGUF.open(cut).close()


def first_generation(folder, rows, width, extra=()):
    """A file whose Q2_0 tensors lie in blocks of 128 weights in 34 bytes."""
    old, kind = by_name("PQ2_0"), by_name("Q2_0")
    tensors = [
        (f"t{i}", (rows, width), old, random_blocks((rows, width), old, np.random.default_rng(i)))
        for i in range(3)
    ]
    path = write_gguf(folder / "old.gguf", {}, [*tensors, *extra])
    data = path.read_bytes()
    path.write_bytes(data.replace(struct.pack("<I", old.id), struct.pack("<I", kind.id)))
    return path


@pytest.mark.parametrize("rows", [3, 64])
def test_q2_0_of_the_first_generation_is_told_from_a_damaged_file(tmp_path, rows):
    expected = "tensor 't0' says Q2_0, but lies in blocks of 128 weights in 34 bytes"
    with pytest.raises(FormatError, match=expected):
        GGUF.open(first_generation(tmp_path, rows, 1024))
    with pytest.raises(FormatError, match=expected):
        norm = ("norm", (64,), F32, np.zeros(64, np.float32))
        GGUF.open(first_generation(tmp_path, rows, 1024, [norm]))


def test_q2_0_of_today_is_read_and_a_short_one_is_called_cut(tmp_path):
    kind = by_name("Q2_0")
    data = random_blocks((64, 1024), kind, np.random.default_rng(0))
    path = write_gguf(tmp_path / "a.gguf", {}, [("t", (64, 1024), kind, data)])
    GGUF.open(path).close()
    os.truncate(path, path.stat().st_size - 200)
    with pytest.raises(FormatError, match="tensor 't' ends 200 bytes past the end"):
        GGUF.open(path)


def split(folder):
    tensors = [(f"t{i}", (4,), F32, np.zeros(4, np.float32)) for i in range(3)]
    return write_gguf(folder / "m.gguf", {"general.architecture": "x"}, tensors, parts=3)


def test_a_missing_part_is_named(tmp_path):
    path = split(tmp_path)
    path.with_name("m-00003-of-00003.gguf").unlink()
    with pytest.raises(
        FormatError, match=r"m-00003-of-00003\.gguf: cannot be opened: no such file"
    ):
        GGUF.open(path)


def test_opening_a_later_part_names_the_first(tmp_path):
    path = split(tmp_path).with_name("m-00002-of-00003.gguf")
    with pytest.raises(FormatError, match="not the first part of its model; open m-00001-of-00003"):
        GGUF.open(path)


def test_a_renamed_part_is_refused_with_the_name_it_needs(tmp_path):
    path = split(tmp_path)
    other = path.rename(tmp_path / "model.gguf")
    with pytest.raises(FormatError, match=r"one of 3 parts.* like MODEL-00001-of-00003\.gguf"):
        GGUF.open(other)


def test_parts_in_the_wrong_order_are_refused(tmp_path):
    path = split(tmp_path)
    second, third = (path.with_name(f"m-0000{i}-of-00003.gguf") for i in (2, 3))
    contents = second.read_bytes()
    second.write_bytes(third.read_bytes())
    third.write_bytes(contents)
    with pytest.raises(FormatError, match=r"00002-of-00003.gguf: should be part 1 .* it says 2"):
        GGUF.open(path)


def test_a_tensor_in_two_parts_is_refused(tmp_path):
    path = split(tmp_path)
    second = path.with_name("m-00002-of-00003.gguf")
    second.write_bytes(second.read_bytes().replace(text(b"t1"), text(b"t0")))
    with pytest.raises(
        FormatError, match=r"00002-of-00003\.gguf: tensor 't0' is in an earlier part"
    ):
        GGUF.open(path)


def test_a_part_of_another_model_is_refused(tmp_path):
    path = split(tmp_path)
    second = path.with_name("m-00002-of-00003.gguf")
    keys = {"split.no": np.uint16(1), "split.count": np.uint16(3)}
    write_gguf(second, keys, [])
    with pytest.raises(FormatError, match=r"split\.tensors\.count is 3, but its 3 parts hold 2"):
        GGUF.open(path)
