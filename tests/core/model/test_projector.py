"""Opening projectors, what they refuse by name, and the rows they make and remember."""

import threading

import numpy as np
import pytest

from golem_core.formats.gguf import GGUF
from golem_core.media import MediaError
from golem_core.model import ModelError, open_decoder
from golem_core.model import projector as projector_module
from golem_core.model.media import Limits
from golem_core.model.projector import run_whole
from tests.plugins.projectors import picture, recording, write_projector

SETTINGS = {"context": 512, "pass_width": 64, "threads": 2}
SMALL = Limits(tokens=(2, 12))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory, tiny_model):
    """tiny("e2b") -> a model's path."""
    return lambda name: tiny_model(f"gemma4-{name}")


@pytest.fixture(scope="module")
def mmproj(tmp_path_factory):
    folder = tmp_path_factory.mktemp("projectors")
    return write_projector(folder / "both.gguf", 256)


def opened(path, mmproj, **more):
    return open_decoder(path, mmproj=mmproj, media=SMALL, **SETTINGS | more)


@pytest.fixture(scope="module")
def model(tiny, mmproj):
    with_eyes = opened(tiny("e2b"), mmproj)
    yield with_eyes
    with_eyes.close()


def test_a_picture_and_a_recording_become_rows_as_wide_as_the_model(model):
    projector = model.projector
    assert projector.kinds == {"image", "audio"}
    seen = projector.rows("image", picture())
    assert seen.kind == "image"
    assert 2 <= len(seen) <= 12
    assert seen.embeddings.shape == (len(seen), 256)
    assert seen.embeddings.dtype == np.float32
    assert not seen.both_ways
    heard = projector.rows("audio", recording(seconds=0.6))
    frames = (9600 + 160 - 321) // 160 + 1
    assert len(heard) == ((frames + 1) // 2 + 1) // 2


def test_rows_equal_those_of_the_reference_executor(tiny, mmproj, model):
    slow = opened(tiny("e2b"), mmproj, executor="reference")
    for kind, data in (("image", picture()), ("audio", recording())):
        mine, truth = (m.projector.rows(kind, data).embeddings for m in (model, slow))
        assert np.abs(mine - truth).max() < 1e-4 * np.abs(truth).max()
    slow.close()


def test_the_same_bytes_are_seen_once_and_others_anew(tiny, mmproj):
    model = opened(tiny("e2b"), mmproj)
    passes = []

    def run(executor, inputs):
        passes.append(executor)
        return run_whole(executor, inputs)

    first = model.projector.rows("image", picture(1), run)
    assert model.projector.rows("image", picture(1), run) is first
    other = model.projector.rows("image", picture(2), run)
    assert other.digest != first.digest
    assert not np.array_equal(other.embeddings, first.embeddings)
    assert len(passes) == 2
    model.close()


def test_rows_are_kept_within_a_bound_of_bytes_the_oldest_go_first(tiny, mmproj):
    size = 12 * 256 * 4
    model = opened(tiny("e2b"), mmproj, media_cache=2 * size)
    seen = [model.projector.rows("image", picture(i, 300, 300)) for i in range(2)]
    sizes = [rows.embeddings.nbytes for rows in seen]
    assert sum(sizes) <= 2 * size
    assert model.projector.rows("image", picture(0, 300, 300)) is seen[0]  # the newer one now
    model.projector.rows("image", picture(2, 300, 300))
    assert model.projector.rows("image", picture(0, 300, 300)) is seen[0]
    assert model.projector.rows("image", picture(1, 300, 300)) is not seen[1]
    model.close()
    none = opened(tiny("e2b"), mmproj, media_cache=0)
    first = none.projector.rows("image", picture())
    assert none.projector.rows("image", picture()) is not first
    none.close()


def test_threads_that_want_the_same_picture_see_it_once(tiny, mmproj):
    model = opened(tiny("e2b"), mmproj)
    passes, found = [], []

    def run(executor, inputs):
        passes.append(1)
        return run_whole(executor, inputs)

    def look():
        found.append(model.projector.rows("image", picture(5), run))

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(passes) == 1
    assert len({id(rows) for rows in found}) == 1
    model.close()


def test_few_decoded_pictures_are_in_memory_however_many_wait(tiny, mmproj, monkeypatch):
    model = opened(tiny("e2b"), mmproj)
    decoded, gate = [], threading.Event()
    real = projector_module.decode_picture
    monkeypatch.setattr(
        projector_module,
        "decode_picture",
        lambda data, **bounds: (decoded.append(data), real(data, **bounds))[1],
    )
    inside = threading.Semaphore(0)

    def run(executor, inputs):
        inside.release()
        gate.wait()
        return run_whole(executor, inputs)

    found = []
    threads = [
        threading.Thread(
            target=lambda seed=seed: found.append(model.projector.rows("image", picture(seed), run))
        )
        for seed in range(6)
    ]
    for thread in threads:
        thread.start()
    inside.acquire()  # one is being looked at
    assert len(decoded) <= 2
    gate.set()
    for thread in threads:
        thread.join()
    assert len(decoded) == len(found) == 6
    model.close()


def test_whoever_waits_for_the_desk_may_leave(tiny, mmproj):
    """What ``waiting`` raises gives the wait up, and the others go on."""
    model = opened(tiny("e2b"), mmproj)
    projector, gate, inside = model.projector, threading.Event(), threading.Semaphore(0)

    def run(executor, inputs):
        inside.release()
        gate.wait()
        return run_whole(executor, inputs)

    def leave():
        raise TimeoutError

    first = threading.Thread(target=projector.rows, args=("image", picture(1), run))
    first.start()
    inside.acquire()
    with pytest.raises(TimeoutError):
        projector.rows("image", picture(2), run, leave)
    gate.set()
    first.join()
    assert len(projector.rows("image", picture(2))) > 0
    model.close()


@pytest.mark.parametrize(
    ("kind", "data", "limits", "said"),
    [
        ("image", b"hello", {}, "not a picture of a known kind"),
        ("audio", b"hello", {}, "a recording that cannot be decoded"),
        ("image", bytes(3000), {"bytes": 2000}, "a picture of 0.0 MB, and 0.0 MB is the most"),
        ("audio", recording(), {"seconds": 0.5}, "a recording of more than 0.5 seconds"),
        ("image", picture(1, 30, 20), {"pixels": 500}, "a picture of 30 x 20 pixels"),
    ],
)
def test_what_is_no_picture_or_too_much_of_one_is_refused(kind, data, limits, said, tiny, mmproj):
    model = open_decoder(
        tiny("e2b"), mmproj=mmproj, media=Limits(tokens=(2, 12), **limits), **SETTINGS
    )
    with pytest.raises(MediaError, match=said):
        model.projector.rows(kind, data)
    model.close()


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"tokens": (10, 3)}, "a picture of 10 to 3 tokens"),
        ({"tokens": (0, -5)}, "a picture of 0 to -5 tokens"),
        ({"pixels": 0}, "pixels=0: a bound is a number above 0"),
        ({"seconds": float("nan")}, "seconds=nan"),
        ({"bytes": -1}, "bytes=-1"),
    ],
)
def test_bounds_that_admit_nothing_are_refused(limits, said):
    with pytest.raises(ValueError, match=said):
        Limits(**limits)


def test_a_tower_that_is_not_there_is_said(tiny, tmp_path):
    for without, kind, said in (
        ("vision", "image", "a projector that cannot see, so it cannot look at a picture"),
        ("audio", "audio", "a projector that cannot hear, so it cannot listen"),
    ):
        path = write_projector(tmp_path / f"{without}.gguf", 256, without=without)
        model = opened(tiny("e2b"), path)
        with pytest.raises(MediaError, match=said):
            model.projector.rows(kind, b"")
        model.close()


def refusal(model, mmproj) -> str:
    with pytest.raises(ModelError) as caught:
        opened(model, mmproj)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_no_pair_is_refused_by_name(tiny, tiny_model, tmp_path, mmproj):
    e2b = tiny("e2b")
    narrow = write_projector(tmp_path / "narrow.gguf", 72)
    said = refusal(e2b, narrow)
    assert f"{narrow}: the projector makes rows of 72 values for what it sees, and {e2b}" in said
    assert "reads rows of 256; they are not a pair" in said
    assert "architecture 'gemma4'; -mmproj takes a projector, whose architecture is \"clip\"" in (
        refusal(e2b, e2b)
    )
    assert "golem's llama reads text alone; leave -mmproj out" in refusal(
        tiny_model("llama"), mmproj
    )
    other = write_projector(tmp_path / "other.gguf", 256, vision_projector_type="resampler")
    assert "its vision projector is of the type 'resampler'; gemma4 takes gemma4v, gemma4uv" in (
        refusal(e2b, other)
    )
    blind = write_projector(tmp_path / "blind.gguf", 256, "std", without="vision")
    assert "this projector can neither see nor hear" in refusal(e2b, blind)


def test_a_model_whose_pictures_see_both_ways_has_passes_as_wide_as_one(tiny, mmproj):
    """And rings that hold them; one whose pictures do not is as wide as it was."""
    wide = open_decoder(tiny("dense"), mmproj=mmproj, media=Limits(tokens=(2, 200)), **SETTINGS)
    assert (wide.pass_width, wide.widest) == (64, 200 + 64)
    rings = [s for s in wide.program.states.values() if s.window]
    assert all(ring.capacity(512, wide.widest) >= ring.window + 264 for ring in rings)
    assert wide.projector.rows("image", picture()).both_ways
    assert not wide.projector.rows("audio", recording()).both_ways
    assert {"embeddings", "place", "until"} <= set(wide.program.inputs)
    wide.close()
    causal = open_decoder(tiny("e2b"), mmproj=mmproj, media=Limits(tokens=(2, 200)), **SETTINGS)
    assert (causal.widest, "until" in causal.program.inputs) == (64, False)
    causal.close()
    blind = open_decoder(tiny("dense"), **SETTINGS)
    assert (blind.projector, blind.widest, "place" in blind.program.inputs) == (None, 64, False)
    blind.close()


def test_the_estimate_counts_the_projector(tiny, mmproj, model):
    blind = open_decoder(tiny("e2b"), **SETTINGS)
    with GGUF.open(mmproj) as file:
        towers = file.size_bytes
    more = model.estimate.weights - blind.estimate.weights
    assert 0.9 * towers < more <= towers
    assert model.estimate.arena > blind.estimate.arena
    blind.close()
