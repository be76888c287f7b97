"""The tower of Qwen3.5, layer by layer, against transformers' and llama.cpp's on a tiny one."""

import gzip

import numpy as np
import pytest

from golem_core.cpu import CpuExecutor
from golem_core.formats.gguf import GGUF
from golem_core.model import ModelError
from golem_core.model.hyper import Hyper
from golem_core.model.media import Limits
from golem_core.model.tensors import Tensors
from golem_core.reference import ReferenceExecutor
from golem_plugins.qwen35.vision import Qwen35Vision, stretched
from tests.paths import data
from tests.plugins.projectors import error, squares

EXECUTORS = {"reference": ReferenceExecutor, "cpu": lambda p: CpuExecutor(p, threads=2)}


@pytest.fixture(scope="module")
def projector(tmp_path_factory):
    path = tmp_path_factory.mktemp("projector") / "mmproj.gguf"
    path.write_bytes(gzip.decompress(data("media/mmproj_qwen35.gguf.gz").read_bytes()))
    with GGUF.open(path) as file:
        yield file


def tower(file, keys=None, **limits):
    hyper = Hyper(dict(file.metadata.items()) | (keys or {}), "clip.vision", file.path.name)
    return Qwen35Vision(hyper, Tensors(file.tensors), Limits(**limits))


@pytest.mark.parametrize("executor", EXECUTORS.values(), ids=EXECUTORS)
def test_the_tower_equals_transformers_layer_by_layer(executor, projector):
    told = np.load(data("media/qwen35_vision.npz"))
    image = told["image_chw"]  # 6 x 8 patches of 4: the table of 8 x 8 is stretched one way
    eye = tower(projector)
    program = eye.program()
    inputs = eye.inputs(squares(image, 4), image.shape[1] // 4, image.shape[2] // 4)
    made = executor(program).run(inputs, ("rows", "blk.0", "blk.1"))
    for i in range(2):
        assert error(made[f"blk.{i}"], told["layers"][i]) < 1e-5
    assert error(made["rows"], told["merged"]) < 1e-5
    assert error(made["rows"], told["merged_llamacpp"]) < 2.3e-3  # it has GELU's tanh form there


def test_pieces_of_a_picture_are_its_patches_unit_by_unit(projector):
    """A picture of the canvas's own size is cut as it is, two by two patches after each other."""
    eye = tower(projector, tokens=(2, 6))
    eye.program()
    picture = np.random.default_rng(1).integers(0, 256, (16, 24, 3)).astype(np.uint8)
    (piece,) = eye.pieces(picture)
    units = [(y + i, x + j) for y in (0, 2) for x in (0, 2, 4) for i in (0, 1) for j in (0, 1)]
    assert piece["where"].tolist() == [list(at) for at in units]
    plain = squares(picture.transpose(2, 0, 1) / 255, 4).reshape(4, 6, -1)
    wanted = np.array([plain[y, x] for y, x in units]) * 2 - 1
    np.testing.assert_allclose(piece["patches"], wanted, atol=1e-6)


@pytest.mark.parametrize(("size", "most"), [((500, 700), 6), ((60, 300), 40), ((9, 9), 100)])
def test_a_picture_keeps_its_shape_and_its_bounds(size, most, projector):
    eye = tower(projector, tokens=(4, most))
    eye.program()
    picture = np.zeros((*size, 3), np.uint8)
    (piece,) = eye.pieces(picture)
    rows = len(piece["patches"]) // 4
    assert 4 <= rows <= most
    high, wide = piece["where"].max(0) + 1
    assert high * wide == 4 * rows
    # No side is further than a unit from what the other one asks for.
    assert abs(4 * high - 4 * wide * size[0] / size[1]) <= eye.unit or (
        abs(4 * wide - 4 * high * size[1] / size[0]) <= eye.unit
    )
    placed = eye.positions(picture, rows)
    assert placed.offsets.shape == (rows, 3)
    assert placed.advance == max(high, wide) // 2


def test_rows_lie_in_a_plane_at_one_time_and_text_goes_on_behind_it(projector):
    eye = tower(projector, tokens=(2, 6))
    placed = eye.positions(np.zeros((16, 24, 3), np.uint8), 6)
    plane = [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 1, 1], [0, 1, 2]]
    assert placed.offsets.tolist() == plane
    assert placed.advance == 3


def test_a_stretched_table_keeps_its_corners_and_is_even_between_them():
    """The value x + 10 y of a table is stretched to what a plane has at those places."""
    side, grid = 4, (7, 10)
    where = np.array([(y, x) for y in range(7) for x in range(10)])
    corners, shares = stretched(where, grid, side)
    table = np.array([x + 10 * y for y in range(side) for x in range(side)])
    found = (table[corners] * shares).sum(1).reshape(grid)
    plane = np.linspace(0, 30, 7)[:, None] + np.linspace(0, 3, 10)
    np.testing.assert_allclose(found, plane, atol=1e-5)
    one, weights = stretched(np.array([[0, 0]]), (1, 1), side)
    assert (table[one] * weights).sum() == 0


@pytest.mark.parametrize(
    ("keys", "limits", "words"),
    [
        ({"attention.head_count": 5}, {}, "head_count is 5"),
        ({"is_deepstack_layers": [False, True]}, {}, "is_deepstack_layers"),
        ({"image_std": [0.5, 0.0, 0.5]}, {}, "three numbers above 0"),
        ({"image_mean": 0.5}, {}, "three numbers"),
        ({}, {"tokens": (0, 20000)}, "-image-max-tokens 20000: 16384 is the most"),
    ],
)
def test_what_does_not_fit_is_refused_by_key(keys, limits, words, projector):
    with pytest.raises(ModelError, match=words):
        tower(projector, {f"clip.vision.{k}": v for k, v in keys.items()}, **limits)


def test_a_tensor_that_does_not_fit_is_named(projector):
    with pytest.raises(ValueError, match=r"mm\.2\.weight has the shape \(40, 128\)"):
        tower(projector, {"clip.vision.projection_dim": 41}).program()
