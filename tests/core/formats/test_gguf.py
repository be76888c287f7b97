"""Reading GGUF: against the gguf package's writer and reader, and round trips of our own."""

import os
import tempfile
import threading
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golem_core.formats.blocks import TYPES, by_name, dequantise, random_blocks
from golem_core.formats.gguf import GGUF, FormatError, write_gguf
from golem_core.formats.metadata import Strings

SCALARS = {
    "uint8": 200,
    "int8": -100,
    "uint16": 60000,
    "int16": -30000,
    "uint32": 4_000_000_000,
    "int32": -2_000_000_000,
    "uint64": 1 << 63,
    "int64": -(1 << 62),
    "float32": 0.5,
    "float64": 0.1,
}


def theirs(path, fill) -> None:
    """Write a file with the gguf package; ``fill`` adds keys and tensors to its writer."""
    writer = gguf.GGUFWriter(path, "test")
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_scalars_of_every_type_are_read_as_the_gguf_package_writes_them(tmp_path):
    path = tmp_path / "a.gguf"

    def fill(writer):
        for name, value in SCALARS.items():
            getattr(writer, f"add_{name}")(name, value)
        writer.add_bool("yes", True)
        writer.add_bool("no", False)
        writer.add_string("text", "größe\n\t")

    theirs(path, fill)
    with GGUF.open(path) as file:
        read = dict(file.metadata)
        names = {key: file.metadata.type_name(key) for key in file.metadata}
    expected = {"general.architecture": "test", **SCALARS, "yes": True, "no": False}
    assert read == {**expected, "text": "größe\n\t"}
    assert read["yes"] is True
    assert names["uint8"], names["float64"] == ("u8", "f64")
    assert file.version == 3


def test_arrays_are_read_as_the_gguf_package_writes_them(tmp_path):
    path = tmp_path / "a.gguf"
    words = ["a", "", "über", "日本", "x" * 300]

    def fill(writer):
        writer.add_array("words", words)
        writer.add_array("ints", [1, -2, 3])
        writer.add_array("floats", [0.5, -1.25])
        writer.add_array("flags", [True, False, True])

    theirs(path, fill)
    with GGUF.open(path) as file:
        keys = file.metadata
        assert list(keys["words"]) == words
        assert keys["words"] == words
        assert keys["ints"].tolist() == [1, -2, 3]
        assert keys["floats"].tolist() == [0.5, -1.25]
        assert keys["flags"].tolist() == [True, False, True]
        assert keys["flags"].dtype == np.bool_
        assert [keys.type_name(k) for k in ("words", "ints", "floats", "flags")] == [
            "str[5]",
            "i32[3]",
            "f32[2]",
            "bool[3]",
        ]


def test_tensors_are_what_the_gguf_packages_reader_sees(tmp_path):
    path = tmp_path / "a.gguf"
    rng = np.random.default_rng(1)
    plain = rng.standard_normal((3, 4, 5)).astype(np.float32)
    coded = random_blocks((7, 512), "Q4_K", rng)

    def fill(writer):
        writer.add_custom_alignment(64)
        writer.add_tensor("plain", plain)
        writer.add_tensor("coded", coded, raw_dtype=gguf.GGMLQuantizationType.Q4_K)
        writer.add_tensor("half", plain[0].astype(np.float16))

    theirs(path, fill)
    reader = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    with GGUF.open(path) as file:
        assert file.alignment == 64
        assert list(file.tensors) == ["plain", "coded", "half"]
        for name, tensor in file.tensors.items():
            other = reader[name]
            assert tensor.type.name == other.tensor_type.name
            assert tensor.shape == tuple(other.shape.tolist()[::-1])
            assert tensor.nbytes == other.n_bytes
            assert tensor.data.tobytes() == other.data.tobytes()
        assert file.tensors["coded"].data.shape == (7, 288)
        assert np.array_equal(file.tensors["plain"].numpy(), plain)
        assert np.array_equal(file.tensors["coded"].numpy(), dequantise(coded, "Q4_K"))
        assert file.n_params == 60 + 7 * 512 + 20
        assert file.size_bytes == 240 + 7 * 288 + 40


def test_the_gguf_package_reads_what_we_write(tmp_path):
    rng = np.random.default_rng(2)
    shared = [type for type in TYPES.values() if type.id < 41]
    tensors = [
        (type.name, (2, type.weights), type, random_blocks((2, type.weights), type, rng))
        for type in shared
    ]
    keys = {"general.architecture": "test", "n": 3, "f": 0.5, "words": ["a", "b"], "yes": True}
    keys |= {"ids": np.array([1, 2], np.uint16), "big": np.uint64(1 << 40), "minus": -1}
    path = write_gguf(tmp_path / "a.gguf", keys, tensors)
    reader = gguf.GGUFReader(path)
    values = {key: field.contents() for key, field in reader.fields.items()}
    for key, value in keys.items():
        assert values[key] == (value.tolist() if isinstance(value, np.ndarray) else value)
    for tensor, (name, _, type, data) in zip(reader.tensors, tensors, strict=True):
        assert (tensor.name, tensor.tensor_type.value) == (name, type.id)
        assert tensor.data.tobytes() == data.tobytes()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [1, 8, 32, 4096])
def test_round_trip_keeps_every_value_type_and_tensor(tmp_path, version, alignment):
    rng = np.random.default_rng(3)
    keys = {name: np.dtype(name).type(value) for name, value in SCALARS.items()}
    keys |= {f"{name}s": np.full(5, value) for name, value in keys.items()}
    keys |= {"text": "t", "yes": True, "no": False, "nested": [[1, 2], [], [3]]}
    keys |= {"lists": [["a", "bc"], [""]], "deep": [[[[7]]]], "none": np.zeros(0, np.float32)}
    tensors = [
        (f"t{i}", shape, by_name(name), random_blocks(shape, name, rng))
        for i, (name, shape) in enumerate(
            [("F32", (3,)), ("Q8_0", (2, 3, 32)), ("BF16", (1, 1, 2, 5)), ("Q6_K", (4, 256))]
        )
    ]
    path = write_gguf(tmp_path / "a.gguf", keys, tensors, alignment=alignment, version=version)
    with GGUF.open(path) as file:
        assert (file.version, file.alignment) == (version, alignment)
        for key, value in keys.items():
            assert plain(file.metadata[key]) == plain(value), key
        for name, shape, type, data in tensors:
            assert (file.tensors[name].shape, file.tensors[name].type) == (shape, type)
            assert file.tensors[name].data.tobytes() == data.tobytes()


def plain(value):
    """Arrays of any make as lists."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        return value
    return [plain(item) for item in value]


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | words | st.floats(width=32)
lists = st.one_of(
    st.lists(words),
    st.lists(st.booleans()),
    st.lists(st.floats(width=32)),
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1)),
    st.lists(st.lists(words, max_size=3), max_size=4),
)


@given(st.dictionaries(words, scalars | lists, max_size=8))
def test_any_metadata_comes_back_as_it_was(keys):
    keys.pop("general.alignment", None)
    with tempfile.TemporaryDirectory() as folder:
        path = write_gguf(Path(folder) / "a.gguf", keys, [])
        with GGUF.open(path) as file:
            assert list(file.metadata) == list(keys)
            for key, value in keys.items():
                np.testing.assert_equal(plain(file.metadata[key]), value)


def test_opening_a_large_vocabulary_decodes_none_of_it(tmp_path, monkeypatch):
    """Not one of the strings is looked at until it is asked for, and then only that one."""
    words = [f"w{i}" for i in range(262144)]
    scores = np.arange(262144, dtype=np.float32)
    path = write_gguf(tmp_path / "a.gguf", {"words": words, "scores": scores, "last": "end"}, [])
    decoded = []
    original = Strings._decode
    monkeypatch.setattr(
        Strings, "_decode", lambda self, a, b: decoded.append(a) or original(self, a, b)
    )
    with GGUF.open(path) as file:
        array = file.metadata["words"]
        assert file.metadata["last"] == "end"
        assert len(array) == 262144
        assert array._index is None
        assert (array[0], array[-1], array[200000]) == ("w0", "w262143", "w200000")
        assert len(decoded) == 3
        assert array[10:13] == ["w10", "w11", "w12"]
        assert list(array) == words
        assert np.array_equal(file.metadata["scores"], scores)


def test_the_index_of_a_vocabulary_takes_eight_bytes_a_string(tmp_path):
    words = ["token" * 5] * 100_000
    path = write_gguf(tmp_path / "a.gguf", {"words": words}, [])
    with GGUF.open(path) as file:
        array = file.metadata["words"]
        assert array[99_999] == words[0]
        assert array._index.nbytes == 8 * 100_001


def test_strings_keep_bytes_that_are_no_utf8(tmp_path):
    path = write_gguf(tmp_path / "a.gguf", {"words": [b"\xff\xfe", b"ok"], "one": b"\xffx"}, [])
    with GGUF.open(path) as file:
        words = file.metadata["words"]
        assert [w.encode("utf-8", "surrogateescape") for w in words] == [b"\xff\xfe", b"ok"]
        assert words[0] == next(iter(words))
        assert words.raw(0) == b"\xff\xfe"
        assert file.metadata["one"] == "\ufffdx"


def test_index_errors_and_equality_of_lazy_arrays(tmp_path):
    path = write_gguf(tmp_path / "a.gguf", {"words": ["a", "b"], "none": [[]]}, [])
    with GGUF.open(path) as file:
        words = file.metadata["words"]
        assert words == ("a", "b")
        assert words != ["a"]
        assert words != "ab"
        assert "b" in words
        assert [len(inner) for inner in file.metadata["none"]] == [0]
        with pytest.raises(IndexError, match="element 2 of an array of 2"):
            words[2]
        with pytest.raises(IndexError, match="element -3"):
            words[-3]


def test_arrays_and_tensors_cannot_be_written_to(tmp_path):
    tensor = ("t", (4,), by_name("F32"), np.ones(4, np.float32))
    path = write_gguf(tmp_path / "a.gguf", {"ids": [1, 2, 3], "flags": [True]}, [tensor])
    for mapped in (True, False):
        with GGUF.open(path, mapped=mapped) as file:
            keys = file.metadata
            for array in (keys["ids"], keys["flags"], file.tensors["t"].data):
                with pytest.raises(ValueError, match="read-only"):
                    array[0] = 0


@pytest.mark.parametrize("name", ["a", "ab", "abc", "abcd", "abcdefgh"])
def test_numbers_are_aligned_wherever_they_lie_in_the_file(tmp_path, name):
    path = write_gguf(tmp_path / "a.gguf", {name: np.arange(9, dtype=np.float64)}, [])
    with GGUF.open(path) as file:
        values = file.metadata[name]
        assert values.flags.aligned
        assert values.tolist() == list(range(9))
        at_multiple_of_8 = file.metadata._entries[name].at % 8 == 0
        assert np.shares_memory(values, file._parts[0].file.bytes) == at_multiple_of_8


def test_typed_reads_what_fits_and_names_key_wanted_and_found(tmp_path):
    keys = {"n": np.uint8(3), "f": 0.5, "text": "t", "yes": True, "ids": [1, 2], "words": ["a"]}
    keys["none"] = np.zeros(0, np.int32)
    with GGUF.open(write_gguf(tmp_path / "a.gguf", keys, [])) as file:
        typed = file.metadata.typed
        assert typed("n", int) == 3
        assert typed("n", float) == 3.0
        assert isinstance(typed("n", float), float)
        assert typed("f", float) == 0.5
        assert typed("text", str) == "t"
        assert typed("yes", bool) is True
        assert typed("ids", list[int]).tolist() == [1, 2]
        assert typed("ids", list[float]).tolist() == [1, 2]
        assert list(typed("words", list[str])) == ["a"]
        assert len(typed("none", list[str])) == 0
        assert typed("absent", int, 7) == 7
        assert typed("absent", int, None) is None
        for key, kind, text in (
            ("f", int, "the key f must be an integer, it is f32"),
            ("yes", int, "the key yes must be an integer, it is bool"),
            ("n", str, "the key n must be a string, it is u8"),
            ("n", list[int], "the key n must be an array of integers, it is u8"),
            ("ids", int, r"the key ids must be an integer, it is i32\[2\]"),
            ("words", list[float], r"the key words must be an array of numbers, it is str\[1\]"),
            ("text", bool, "the key text must be a bool, it is str"),
            ("absent", int, "the key absent is missing; it must be an integer"),
        ):
            with pytest.raises(FormatError, match=f"a.gguf: {text}"):
                typed(key, kind)


def test_architecture_is_read_or_missed_by_name(tmp_path):
    with GGUF.open(write_gguf(tmp_path / "a.gguf", {"general.architecture": "x"}, [])) as file:
        assert file.architecture == "x"
    with (
        GGUF.open(write_gguf(tmp_path / "b.gguf", {}, [])) as file,
        pytest.raises(FormatError, match=r"key general\.architecture is missing"),
    ):
        file.architecture  # noqa: B018


def split_model(folder, parts=3):
    rng = np.random.default_rng(4)
    tensors = [
        (f"t{i}", (2, 32), by_name("Q4_0"), random_blocks((2, 32), "Q4_0", rng)) for i in range(5)
    ]
    keys = {"general.architecture": "x"}
    return write_gguf(folder / "m.gguf", keys, tensors, parts=parts, alignment=64), tensors


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_split_files_are_one_model(tmp_path, parts):
    path, tensors = split_model(tmp_path, parts)
    assert path.name == f"m-00001-of-{parts:05}.gguf"
    with GGUF.open(path) as file:
        assert [p.name for p in file.paths] == [
            f"m-{i:05}-of-{parts:05}.gguf" for i in range(1, parts + 1)
        ]
        assert list(file.tensors) == [name for name, *_ in tensors]
        for name, _, _, data in tensors:
            assert file.tensors[name].data.tobytes() == data.tobytes()
        assert file.metadata["split.count"] == parts
        assert not file.changed()
        os.utime(file.paths[-1], (1, 1))
        assert file.changed()


def test_changed_sees_growth_shrinking_replacement_and_removal(tmp_path):
    def fresh():
        write_gguf(tmp_path / "a.gguf", {"k": 1}, [])
        return GGUF.open(tmp_path / "a.gguf")

    def replace(path):
        status = path.stat()
        path.rename(path.with_name("old"))
        path.write_bytes(path.with_name("old").read_bytes())
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def same_time(path, change):
        status = path.stat()
        change(path)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    for change in (
        lambda path: same_time(path, lambda p: p.write_bytes(p.read_bytes() + b"x")),
        lambda path: same_time(path, lambda p: os.truncate(p, 30)),
        replace,
        lambda path: os.utime(path, (5, 5)),
        lambda path: path.unlink(),
    ):
        with fresh() as file:
            assert not file.changed()
            change(file.path)
            assert file.changed()


def test_an_unmapped_file_outlives_its_truncation(tmp_path):
    tensor = ("t", (1024,), by_name("F32"), np.arange(1024, dtype=np.float32))
    path = write_gguf(tmp_path / "a.gguf", {"words": ["a"] * 1000}, [tensor])
    with GGUF.open(path, mapped=False) as file:
        os.truncate(path, 0)
        assert file.changed()
        assert file.tensors["t"].numpy()[1023] == 1023
        assert list(file.metadata["words"]) == ["a"] * 1000


def test_close_forgets_and_leaves_arrays_that_were_handed_out(tmp_path):
    tensor = ("t", (8,), by_name("F32"), np.arange(8, dtype=np.float32))
    path = write_gguf(tmp_path / "a.gguf", {"k": 1}, [tensor])
    file = GGUF.open(path)
    data = file.tensors["t"].numpy()
    file.close()
    file.close()
    assert not file.tensors
    assert len(file.metadata) == 0
    assert data.tolist() == list(range(8))


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def maps_of(name: str) -> int:
    with open("/proc/self/maps") as file:
        return sum(name in line for line in file)


def test_opening_and_closing_leaves_no_descriptor_and_no_map(tmp_path):
    path, _ = split_model(tmp_path)
    before = open_descriptors()
    for _ in range(3):
        with GGUF.open(path) as file:
            assert maps_of(str(tmp_path)) == 3
            list(file.metadata.values())
        assert maps_of(str(tmp_path)) == 0
    path.with_name("m-00003-of-00003.gguf").unlink()
    with pytest.raises(FormatError):
        GGUF.open(path)
    assert maps_of(str(tmp_path)) == 0
    assert open_descriptors() == before


def test_values_may_be_read_by_many_threads(tmp_path):
    path = write_gguf(tmp_path / "a.gguf", {f"k{i}": [f"v{i}"] * 50 for i in range(50)}, [])
    results = []
    with GGUF.open(path) as file:

        def read():
            results.append([list(file.metadata[f"k{i}"]) for i in range(50)])

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 8
    assert all(result == results[0] for result in results)
    assert results[0][49] == ["v49"] * 50
