"""Writing GGUF: data in pieces, and what the writer refuses."""

import numpy as np
import pytest

from golem_core.formats.blocks import by_name, random_blocks
from golem_core.formats.gguf import GGUF, write_gguf

F32, Q4_0 = by_name("F32"), by_name("Q4_0")


def test_data_may_come_from_functions_and_in_pieces_one_tensor_after_the_other(tmp_path):
    rows = random_blocks((6, 64), "Q4_0", np.random.default_rng(0))
    asked = []

    def pieces():
        asked.append("pieces")
        yield rows[:2]
        yield rows[2:]

    def whole():
        asked.append("whole")
        return rows

    tensors = (item for item in [("a", (6, 64), Q4_0, pieces), ("b", (6, 64), Q4_0, whole)])
    with GGUF.open(write_gguf(tmp_path / "a.gguf", {}, tensors)) as file:
        assert asked == ["pieces", "whole"]
        assert np.array_equal(file.tensors["a"].data, rows)
        assert np.array_equal(file.tensors["b"].data, rows)


def test_strided_values_are_written_in_order(tmp_path):
    values = np.arange(24, dtype=np.float32).reshape(4, 6).T
    path = write_gguf(tmp_path / "a.gguf", {}, [("a", (6, 4), F32, values)])
    with GGUF.open(path) as file:
        assert np.array_equal(file.tensors["a"].numpy(), values)


def test_integers_take_the_smallest_of_the_usual_types(tmp_path):
    keys = {"a": 1, "b": -1, "c": 1 << 40, "d": -(1 << 40), "e": [1, -1], "f": [1 << 31]}
    keys |= {"g": [-(1 << 40)], "h": [True], "i": [], "j": (1.5,), "k": np.float64(1)}
    with GGUF.open(write_gguf(tmp_path / "a.gguf", keys, [])) as file:
        names = [file.metadata.type_name(key) for key in keys]
    assert names[:5] == ["u32", "i32", "u64", "i64", "i32[2]"]
    assert names[5:] == ["u32[1]", "i64[1]", "bool[1]", "i32[0]", "f32[1]", "f64"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = write_gguf(tmp_path / "a.gguf", {"k": 1}, [])
    with pytest.raises(ValueError, match="tensor a: 16 bytes were given, F32 needs 20"):
        write_gguf(path, {"k": 2}, [("a", (5,), F32, np.zeros(4, np.float32))])
    assert [file.name for file in tmp_path.iterdir()] == ["a.gguf"]
    with GGUF.open(path) as file:
        assert file.metadata["k"] == 1


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"k": None}, "has no type for NoneType"),
        ({"k": {}}, "has no type for dict"),
        ({"k": 1 << 64}, "fit none of GGUF's types"),
        ({"k": [1, "a"]}, "an array holds one type, not str, u32"),
        ({"k": np.float16(1)}, "no type for numpy's float16"),
    ],
)
def test_metadata_without_a_gguf_type_is_refused(tmp_path, keys, text):
    with pytest.raises(ValueError, match=text):
        write_gguf(tmp_path / "a.gguf", keys, [])


@pytest.mark.parametrize(
    ("shape", "data", "text"),
    [
        ((2, 33), np.zeros(1, np.uint8), "a row of 33 weights cannot be Q4_0"),
        ((2, 32), np.zeros((2, 32), np.float32), "tensor a: Q4_0 takes u8 rows, not float32"),
        ((2, 32), np.zeros((1, 18), np.uint8), "18 bytes were given, Q4_0 needs 36"),
    ],
)
def test_data_that_does_not_fit_its_type_is_refused(tmp_path, shape, data, text):
    with pytest.raises(ValueError, match=text):
        write_gguf(tmp_path / "a.gguf", {}, [("a", shape, Q4_0, data)])
