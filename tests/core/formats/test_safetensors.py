"""safetensors: against the safetensors package, shards and folders, and refusals."""

import json
import os
import struct

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from golem_core.formats.blocks import dequantise, quantise
from golem_core.formats.safetensors import FormatError, Safetensors

PLAIN = [np.float32, np.float16, np.int8, np.uint8, np.int32, np.int64]


def raw(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype="F32", shape=(2,), at=(0, 8)) -> dict:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(at)}


def test_plain_types_are_what_the_safetensors_package_saved(tmp_path):
    rng = np.random.default_rng(0)
    tensors = {np.dtype(kind).name: rng.integers(-9, 9, (3, 4)).astype(kind) for kind in PLAIN}
    tensors |= {"flags": np.array([True, False]), "scalar": np.float32(7), "none": np.zeros((0, 3))}
    tensors["none"] = tensors["none"].astype(np.float32)
    path = tmp_path / "a.safetensors"
    save_file({name: np.asarray(value) for name, value in tensors.items()}, path, {"format": "np"})
    with Safetensors.open(path) as file:
        assert file.metadata == {"format": "np"}
        assert file.tensors.keys() == tensors.keys()
        for name, value in tensors.items():
            read = file.numpy(name)
            assert (read.shape, read.dtype) == (value.shape, value.dtype)
            assert np.array_equal(read, value)
            assert file.tensors[name].nbytes == value.nbytes
        names = {name: tensor.dtype for name, tensor in file.tensors.items()}
    assert names["float16"], names["flags"] == ("F16", "BOOL")


def save_bits(path, dtype: str, bits: np.ndarray) -> None:
    """Save an array's bytes under a dtype that numpy lacks; the package agrees that it is one."""
    at = (0, bits.nbytes)
    path.write_bytes(raw({"t": entry(dtype, bits.shape, at)}, bits.tobytes()))
    with safe_open(path, "numpy") as theirs:
        assert theirs.get_slice("t").get_dtype() == dtype


def test_bf16_is_decoded_to_f32(tmp_path):
    values = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    bits = quantise(values, "BF16")
    save_bits(tmp_path / "a.safetensors", "BF16", bits.view("<u2"))
    with Safetensors.open(tmp_path / "a.safetensors") as file:
        assert file.tensors["t"].dtype == "BF16"
        assert file.numpy("t").dtype == np.float32
        assert np.array_equal(file.numpy("t"), dequantise(bits, "BF16"))


def test_f8_e5m2_is_the_high_byte_of_f16(tmp_path):
    codes = np.arange(256, dtype=np.uint8)
    save_bits(tmp_path / "a.safetensors", "F8_E5M2", codes)
    expected = (codes.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    with Safetensors.open(tmp_path / "a.safetensors") as file:
        assert np.array_equal(file.numpy("t"), expected, equal_nan=True)


def test_f8_e4m3_has_the_values_of_its_definition(tmp_path):
    """1 sign, 4 exponent bits with bias 7, 3 mantissa bits; all ones is NaN, nothing infinite."""
    codes = np.arange(256, dtype=np.uint8)
    save_bits(tmp_path / "a.safetensors", "F8_E4M3", codes)
    with Safetensors.open(tmp_path / "a.safetensors") as file:
        values = file.numpy("t")
    known = {0x00: 0, 0x01: 2**-9, 0x07: 7 * 2**-9, 0x08: 2**-6, 0x38: 1, 0x3C: 1.5, 0x7E: 448}
    assert {code: float(values[code]) for code in known} == known
    assert np.flatnonzero(np.isnan(values)).tolist() == [0x7F, 0xFF]
    assert not np.isinf(values).any()
    assert np.array_equal(values[128:255], -values[:127])
    assert (np.diff(values[:127]) > 0).all()
    steps = np.diff(values[:127].reshape(-1)[8:64].reshape(-1, 8), axis=1)
    assert np.array_equal(steps[1:], 2 * steps[:-1])


def test_unaligned_data_is_aligned_by_numpy(tmp_path):
    path = tmp_path / "a.safetensors"
    values = np.arange(2, dtype=np.float32)
    for spaces in range(4):
        text = json.dumps({"t": entry()}).encode() + b" " * spaces
        path.write_bytes(raw(text, values.tobytes()))
        with Safetensors.open(path) as file:
            assert file.numpy("t").flags.aligned
            assert np.array_equal(file.numpy("t"), values)


def shards(folder, index_name="model.safetensors.index.json"):
    rng = np.random.default_rng(2)
    values = {f"t{i}": rng.standard_normal((2, 3)).astype(np.float32) for i in range(4)}
    names = {name: f"model-0000{1 + i // 2}-of-00002.safetensors" for i, name in enumerate(values)}
    for shard in set(names.values()):
        save_file({name: values[name] for name in values if names[name] == shard}, folder / shard)
    index = folder / index_name
    index.write_text(json.dumps({"metadata": {"total_size": 96}, "weight_map": names}))
    return index, values


def test_shards_are_one_checkpoint_by_index_or_folder(tmp_path):
    index, values = shards(tmp_path)
    for path in (index, tmp_path):
        with Safetensors.open(path) as file:
            assert len(file.paths) == 2
            assert {name: file.numpy(name).tolist() for name in file.tensors} == {
                name: value.tolist() for name, value in values.items()
            }
            assert not file.changed()
    with Safetensors.open(index) as file:
        os.utime(file.paths[1], (1, 1))
        assert file.changed()


def test_a_folder_with_one_file_opens_it(tmp_path):
    save_file({"t": np.ones(3, np.float32)}, tmp_path / "any.safetensors")
    with Safetensors.open(tmp_path) as file:
        assert file.path == tmp_path / "any.safetensors"


def test_folders_without_or_with_several_candidates_are_refused(tmp_path):
    with pytest.raises(FormatError, match=r"holds no \*\.safetensors and no index"):
        Safetensors.open(tmp_path)
    for name in ("a", "b"):
        save_file({"t": np.ones(3, np.float32)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(FormatError, match=r"holds several of .* \(a\.safetensors, b\.saf"):
        Safetensors.open(tmp_path)


def test_a_shard_that_lacks_a_tensor_or_is_missing_is_named(tmp_path):
    index, _ = shards(tmp_path)
    content = json.loads(index.read_text())
    content["weight_map"]["t0"] = "model-00002-of-00002.safetensors"
    index.write_text(json.dumps(content))
    with pytest.raises(FormatError, match=r"says that 't0' is in model-00002-of-00002.* lacks it"):
        Safetensors.open(index)
    index, _ = shards(tmp_path)
    (tmp_path / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(FormatError, match=r"model-00001-of-00002.* cannot be opened: no such file"):
        Safetensors.open(index)


@pytest.mark.parametrize("shard", ["../x.safetensors", "/etc/passwd", "x", "", "a/b.safetensors"])
def test_an_index_reaches_no_file_outside_its_folder(tmp_path, shard):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"t": shard}}))
    with pytest.raises(FormatError, match=r"is no plain file name ending in \.safetensors"):
        Safetensors.open(index)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 1}', '{"weight_map": {"a": 1}}'])
def test_an_unsound_index_is_refused(tmp_path, text):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(text)
    with pytest.raises(FormatError, match=r"index\.json: (the index is unsound|is empty)"):
        Safetensors.open(index)


EIGHT = bytes(8)
CASES = {
    "short": (b"\x01", "is not safetensors: it has 1 bytes"),
    "length": (struct.pack("<Q", 1 << 63) + b"{}", f"would have {1 << 63} bytes, the file has 10"),
    "cut header": (struct.pack("<Q", 9) + b"{}", "header would have 9 bytes, the file has 10"),
    "not json": (raw(b"{nope}"), "the header is unsound: JSON is malformed"),
    "not utf-8": (raw(b'{"\xff": 1}'), "the header is unsound"),
    "list": (raw([]), "the header is unsound: Expected `object`, got `array`"),
    "deep": (raw(b'{"a":' * 5000), "the header is unsound"),
    "two documents": (raw(b"{}{}"), "the header is unsound: JSON is malformed: trailing"),
    "metadata": (raw({"__metadata__": {"a": 1}}), "__metadata__ is unsound"),
    "entry": (raw({"t": 1}), "tensor 't' is unsound: Expected `object`, got `int`"),
    "no dtype": (
        raw({"t": {"shape": [], "data_offsets": [0, 0]}}),
        "missing required field `dtype`",
    ),
    "unknown dtype": (
        raw({"t": entry("F64", (1,))}, EIGHT),
        "tensor 't' has the dtype 'F64'; known are F32 F16 BF16 F8_E4M3",
    ),
    "negative": (raw({"t": entry(shape=(-1, -2))}, EIGHT), r"impossible shape \[-1, -2\]"),
    "boolean": (raw({"t": entry(shape=(True,))}, EIGHT), "Expected `int`, got `bool`"),
    "fraction": (raw({"t": entry(shape=(1.5,))}, EIGHT), "Expected `int`, got `float`"),
    "dimensions": (raw({"t": entry(shape=[1] * 99)}, EIGHT), "has the impossible shape"),
    "huge": (raw({"t": entry(shape=[1 << 62, 1 << 62])}, EIGHT), "has the impossible shape"),
    "huge and none": (raw({"t": entry(shape=[1 << 62, 0], at=(0, 0))}), "the impossible shape"),
    "size": (raw({"t": entry(shape=(3,))}, EIGHT), r"has 8 bytes; F32 of shape \[3\] takes 12"),
    "past end": (
        raw({"t": entry()}, EIGHT[:7]),
        "lies at 0 .. 8 of 7 bytes; the file is cut short",
    ),
    "backwards": (raw({"t": entry(at=(8, 0))}, EIGHT), "lies at 8 .. 0 of 8 bytes"),
    "before": (raw({"t": entry(at=(-8, 0))}, EIGHT), "lies at -8 .. 0 of 8 bytes"),
    "three offsets": (raw({"t": entry(at=(0, 4, 8))}, EIGHT), "Expected `array` of length 2"),
    "overlap": (raw({"t": entry(), "u": entry()}, EIGHT), "tensor 'u' overlaps another one"),
    "gap": (raw({"t": entry(at=(8, 16))}, EIGHT * 2), "the bytes 0 .. 8 belong to no tensor"),
    "rest": (raw({"t": entry()}, EIGHT * 2), "its last 8 bytes belong to no tensor"),
    "twice": (
        raw(
            b'{"t":%s,"t":%s}'
            % (json.dumps(entry()).encode(), json.dumps(entry(at=(8, 16))).encode()),
            EIGHT * 2,
        ),
        "the bytes 0 .. 8 belong to no tensor, or a name occurs twice",
    ),
    "many": (raw(b'{"a":0' + b',"a":0' * 1_000_001 + b"}"), "declares over 250000 tensors"),
}


@pytest.mark.parametrize("name", CASES)
def test_unsound_files_are_refused_in_one_line(tmp_path, name):
    contents, expected = CASES[name]
    path = tmp_path / "a.safetensors"
    path.write_bytes(contents)
    with pytest.raises(FormatError, match=expected) as caught:
        Safetensors.open(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
    assert len(line) < 600


def test_every_truncation_of_a_file_is_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"t": np.ones(4, np.float32), "u": np.ones((2, 2), np.int8)}, path)
    whole = path.read_bytes()
    assert load_file(path).keys() == {"t", "u"}
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError):
            Safetensors.open(path)


def test_a_missing_tensor_is_named(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"t": np.ones(4, np.float32)}, path)
    with Safetensors.open(path) as file, pytest.raises(FormatError, match="has no tensor 'u'"):
        file.numpy("u")
