"""Gemma 4's towers, layer by layer, against transformers' and llama.cpp's on tiny projectors."""

import gzip

import numpy as np
import pytest

from golem_core.cpu import CpuExecutor
from golem_core.formats.gguf import GGUF
from golem_core.media import MediaError
from golem_core.model import ModelError
from golem_core.model.hyper import Hyper
from golem_core.model.media import Limits
from golem_core.model.tensors import Tensors
from golem_core.reference import ReferenceExecutor
from golem_plugins.gemma4.audio import Gemma4Audio, Gemma4Wave
from golem_plugins.gemma4.vision import Gemma4Patches, Gemma4Vision
from tests.paths import data
from tests.plugins.projectors import error, squares

EXECUTORS = {"reference": ReferenceExecutor, "cpu": lambda p: CpuExecutor(p, threads=2)}


class Quick(Gemma4Vision):
    """With the activation llama.cpp runs."""

    act = "gelu_quick"


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    return dict(np.load(data("media/towers.npz")))


@pytest.fixture(scope="module")
def projector(tmp_path_factory):
    """projector("std") -> an open projector's file."""
    folder, opened = tmp_path_factory.mktemp("projectors"), {}

    def find(name: str) -> GGUF:
        if name not in opened:
            path = folder / f"{name}.gguf"
            packed = data(f"media/mmproj_gemma4_{name}.gguf.gz").read_bytes()
            path.write_bytes(gzip.decompress(packed))
            opened[name] = GGUF.open(path)
        return opened[name]

    yield find
    for file in opened.values():
        file.close()


def tower(kind, file, **limits):
    below = "clip.vision" if kind.kind == "image" else "clip.audio"
    return kind(
        Hyper(file.metadata, below, file.path.name), Tensors(file.tensors), Limits(**limits)
    )


def by_blocks(high, wide, size=3):
    """Places of patches in a grid, block after block."""
    return np.array(
        [
            (y + i) * wide + x + j
            for y in range(0, high, size)
            for x in range(0, wide, size)
            for i in range(size)
            for j in range(size)
        ]
    )


def seen(made, image, executor, wanted):
    """A vision tower's outputs on a picture (3, h, w) of exact floats."""
    high, wide = image.shape[1] // 4, image.shape[2] // 4
    order = by_blocks(high, wide)
    where = np.stack([order % wide, order // wide], 1).astype(np.int32)
    inputs = {"patches": 2 * squares(image, 4)[order] - 1, "where": where}
    return executor(made.program()).run(inputs, wanted), order


@pytest.mark.parametrize("executor", EXECUTORS.values(), ids=EXECUTORS)
@pytest.mark.parametrize(("file", "name"), [("clip_audio", "clip"), ("std", "std")])
def test_vision_equals_transformers_layer_by_layer(file, name, executor, projector, recorded):
    told = {k.rpartition(".")[2]: v for k, v in recorded.items() if f"vision_{name}." in k}
    names = ("rows", "pooled", "patch_embed", "blk.0", "blk.1", "blk.2")
    made, order = seen(tower(Gemma4Vision, projector(file)), told["image_chw"], executor, names)
    assert error(made["patch_embed"], told["patch_embed"][order]) < 1e-5
    for i in range(3):
        assert error(made[f"blk.{i}"], told["layers"][i][order]) < 1e-4
    assert error(made["pooled"], told["pooled"]) < 1e-4
    assert error(made["rows"], told["projected"]) < 1e-4


@pytest.mark.parametrize(("file", "name"), [("clip_audio", "clip"), ("std", "std")])
def test_with_the_quick_form_of_gelu_vision_is_llama_cpps(file, name, projector, recorded):
    told = {k.rpartition(".")[2]: v for k, v in recorded.items() if f"vision_{name}." in k}
    made, _ = seen(tower(Quick, projector(file)), told["image_chw"], EXECUTORS["cpu"], ("rows",))
    assert error(made["rows"], told["projected_quick_gelu"]) < 1e-4
    assert error(made["rows"], told["projected_llamacpp"]) < 2e-3
    exact, _ = seen(
        tower(Gemma4Vision, projector(file)), told["image_chw"], EXECUTORS["cpu"], ("rows",)
    )
    assert error(exact["rows"], told["projected_llamacpp"]) > 1e-2  # why the form is chosen


@pytest.mark.parametrize("executor", EXECUTORS.values(), ids=EXECUTORS)
def test_the_conformer_equals_transformers_layer_by_layer(executor, projector, recorded):
    told = {k.rpartition(".")[2]: v for k, v in recorded.items() if k.startswith("gemma4_audio.")}
    program = tower(Gemma4Audio, projector("clip_audio")).program()
    names = ("rows", "subsampled", "blk.0", "blk.1", "out")
    made = executor(program).run({"mel": told["mel"]}, names)
    assert error(made["subsampled"], told["subsampled"]) < 1e-5
    for i in range(2):
        assert error(made[f"blk.{i}"], told["layers"][i]) < 1e-4
    assert error(made["out"], told["out"]) < 1e-4
    assert error(made["rows"], told["projected"]) < 1e-4
    assert error(made["rows"], told["projected_llamacpp"]) < 2e-3


@pytest.mark.parametrize("executor", EXECUTORS.values(), ids=EXECUTORS)
def test_the_unified_projector_equals_both(executor, projector, recorded):
    told = {
        k.rpartition(".")[2]: v
        for k, v in recorded.items()
        if ".".join(k.split(".")[:1]) == "gemma4_unified"
    }
    image = told["image_chw"]
    at = np.arange(12)
    inputs = {
        "patches": squares(image, 12),
        "where": np.stack([at % 4, at // 4], 1).astype(np.int32),
    }
    made = executor(tower(Gemma4Patches, projector("unified")).program()).run(
        inputs, ("rows", "hidden")
    )
    assert error(made["hidden"], told["hidden"]) < 1e-5
    assert error(made["rows"], told["projected"]) < 1e-5
    assert error(made["rows"], told["projected_llamacpp"]) < 1e-5
    heard = executor(tower(Gemma4Wave, projector("unified")).program()).run(
        {"frames": told["wave_frames"]}, ("rows",)
    )
    assert error(heard["rows"], told["audio_projected"]) < 1e-5


def test_pieces_of_a_picture_are_its_squares_with_their_places(projector):
    """A picture of the canvas's own size is cut as it is: values, order and places."""
    vision = tower(Gemma4Vision, projector("std"), tokens=(2, 6))
    assert vision.longest == 6
    vision.program()
    picture = np.random.default_rng(1).integers(0, 256, (24, 36, 3)).astype(np.uint8)
    (piece,) = vision.pieces(picture)
    order = by_blocks(6, 9)
    wanted = 2 * squares(picture.transpose(2, 0, 1).astype(np.float32) / 255, 4)[order] - 1
    np.testing.assert_allclose(piece["patches"], wanted, atol=1e-6)
    np.testing.assert_array_equal(piece["where"], np.stack([order % 9, order // 9], 1))
    (piece,) = vision.pieces(np.zeros((500, 700, 3), np.uint8))
    assert 2 <= len(piece["patches"]) // 9 <= 6
    unified = tower(Gemma4Patches, projector("unified"), tokens=(2, 6))
    unified.program()
    (piece,) = unified.pieces(picture)
    wanted = squares(picture.transpose(2, 0, 1).astype(np.float32) / 255, 12)
    np.testing.assert_allclose(piece["patches"], wanted, atol=1e-6)
    assert piece["where"].tolist() == [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]]


def test_a_recording_is_heard_in_pieces_of_thirty_seconds(projector):
    heard = tower(Gemma4Audio, projector("clip_audio"))
    heard.program()
    pieces = list(heard.pieces(np.zeros(16000 * 70, np.float32)))
    assert [len(p["mel"]) for p in pieces] == [2999, 2999, 999]
    wave = tower(Gemma4Wave, projector("unified"))
    wave.program()
    samples = np.arange(130, dtype=np.float32)
    (piece,) = wave.pieces(samples)
    assert piece["frames"].shape == (3, 64)
    np.testing.assert_array_equal(piece["frames"].reshape(-1)[:130], samples)
    assert not piece["frames"].reshape(-1)[130:].any()


def test_a_header_that_does_not_fit_is_refused_by_key_or_tensor(projector):
    file = projector("std")
    keys = dict(file.metadata.items()) | {"clip.vision.attention.head_count": 5}
    with pytest.raises(ModelError, match=r"clip\.vision\.attention\.head_count is 5"):
        Gemma4Vision(Hyper(keys, "clip.vision", "a.gguf"), Tensors(file.tensors), Limits())
    keys = dict(file.metadata.items()) | {"clip.vision.projection_dim": 41}
    made = Gemma4Vision(Hyper(keys, "clip.vision", "a.gguf"), Tensors(file.tensors), Limits())
    with pytest.raises(ValueError, match=r"mm\.input_projection\.weight has the shape \(40, 48\)"):
        made.program()
    with pytest.raises(ModelError, match="-image-max-tokens 5000: 4096 is the most"):
        tower(Gemma4Vision, file, tokens=(0, 5000))


def test_a_picture_longer_than_the_projector_knows_places_is_refused(projector):
    """The tiny projector's tables have 64 places, and its units are 12 pixels of 3 patches."""
    vision = tower(Gemma4Vision, projector("std"), tokens=(2, 300))
    vision.program()
    picture = np.zeros((12, 12 * 22, 3), np.uint8)
    with pytest.raises(MediaError, match="66 squares long; this projector knows 64 places"):
        list(vision.pieces(picture))
