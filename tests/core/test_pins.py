"""Folders of pinned models."""

import hashlib
import json
import multiprocessing
import re

import pytest

from golem_core.pins import MANIFEST, Manifest, PinError, UnknownModel, base_name, digest


def folder_with(tmp_path, **contents):
    for name, data in contents.items():
        (tmp_path / f"{name}.gguf").write_bytes(data)
    return Manifest.read(tmp_path)


def test_a_pin_holds_size_and_sha256_of_the_file(tmp_path):
    manifest = folder_with(tmp_path, A=b"weights")
    assert manifest.pin([tmp_path / "A.gguf"]) == "a"
    written = json.loads((tmp_path / MANIFEST).read_text())
    (part,) = written["models"]["a"]["files"]
    expected = hashlib.sha256(b"weights").hexdigest()
    assert part == {"file": "A.gguf", "size": 7, "sha256": expected}
    again = Manifest.read(tmp_path)
    assert again.pins == manifest.pins
    assert again.pins["a"].sha256 == expected
    assert again.verify("a") >= 0


def test_the_digest_is_that_of_the_whole_file(tmp_path):
    data = bytes(range(256)) * 20000  # several reads, the last one short
    (tmp_path / "x").write_bytes(data)
    assert digest(tmp_path / "x") == (hashlib.sha256(data).hexdigest(), len(data))
    with pytest.raises(PinError, match="given up"):
        digest(tmp_path / "x", lambda: True)
    with pytest.raises(PinError, match="no regular file"):
        digest("/dev/null")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"weighty", "its sha256 is [0-9a-f]{64} and was pinned as [0-9a-f]{64}"),
        (b"w", "has 1 bytes and was pinned with 7"),
        (None, "no such file"),
    ],
)
def test_a_file_that_is_another_is_named(tmp_path, data, why):
    manifest = folder_with(tmp_path, a=b"weights")
    manifest.pin([tmp_path / "a.gguf"])
    (tmp_path / "a.gguf").unlink()
    if data is not None:
        (tmp_path / "a.gguf").write_bytes(data)
    with pytest.raises(PinError, match=re.escape(str(tmp_path / "a.gguf")) + ".*" + why):
        manifest.verify("a")
    assert (manifest.missing("a") is not None) == (data is None)


def test_every_part_of_a_split_model_is_verified(tmp_path):
    names = [f"m-0000{i}-of-00002" for i in (1, 2)]
    manifest = folder_with(tmp_path, **{name: name.encode() for name in names})
    paths = [tmp_path / f"{name}.gguf" for name in names]
    assert manifest.pin(paths) == "m"
    manifest.verify("m")
    paths[1].write_bytes(b"m-00002-of-00003")
    with pytest.raises(PinError, match="m-00002"):
        manifest.verify("m")


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("smollm2-135m-instruct-q4_1", "smollm2-135m-instruct"),
        ("smollm2.q4_k_m", "smollm2"),
        ("x-f16", "x"),
        ("x-pq2_0", "x"),
        ("x-q2_0_g64", "x"),
        ("x-iq4_xs", "x"),
        ("q4-turbo", "q4-turbo"),
        ("qwen3-8b", "qwen3-8b"),
    ],
)
def test_the_quantisation_is_no_part_of_a_base_name(name, base):
    assert base_name(name) == base


def test_names_are_found_as_people_write_them(tmp_path):
    manifest = folder_with(tmp_path, **{"Big-Q4_0": b"1", "small-q8_0": b"2", "small-f16": b"3"})
    for path in tmp_path.glob("*.gguf"):
        manifest.pin([path])
    for asked in ("big-q4_0", "Big-Q4_0.gguf", " BIG:latest ", "big"):
        assert manifest.resolve(asked) == "big-q4_0"
    with pytest.raises(UnknownModel, match="one of several: small-f16, small-q8_0"):
        manifest.resolve("small")
    with pytest.raises(UnknownModel, match=r"pinned models only \(big-q4_0, small-f16"):
        manifest.resolve("other")


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b'{"version": 2, "models": {}}',
        b'{"version": 1}',
        b'{"version": 1, "models": {"a": {"files": [], "pinned_at": ""}}}',
        b'{"version": 1, "models": {"A": {"files": [{"file": "x", "size": 1, "sha256": "'
        + b"0" * 64
        + b'"}], "pinned_at": ""}}}',
        b'{"version": 1, "models": {"a": {"files": [{"file": "x", "size": 1, "sha256": "0"}],'
        b' "pinned_at": ""}}}',
        b'{"version": 1, "models": {"a": {"files": [{"file": "x", "size": -1, "sha256": "'
        + b"0" * 64
        + b'"}], "pinned_at": ""}}}',
        b"[" * 100000,
        b"\xff",
    ],
)
def test_a_manifest_that_is_none_is_refused_by_its_path(tmp_path, text):
    (tmp_path / MANIFEST).write_bytes(text)
    with pytest.raises(PinError, match=re.escape(MANIFEST)):
        Manifest.read(tmp_path)


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(PinError, match="is no folder"):
        Manifest.read(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["../x", "a b", "", "a/b", ".hidden", "x" * 201])
def test_a_name_that_is_none(tmp_path, name):
    manifest = folder_with(tmp_path, a=b"1")
    with pytest.raises(PinError, match="cannot be a model's name"):
        manifest.pin([tmp_path / "a.gguf"], name or " ")
    assert not (tmp_path / MANIFEST).exists()


def _pin_many(folder, first):
    manifest = Manifest.read(folder)
    for number in range(first, first + 10):
        manifest.pin([folder / "a.gguf"], f"m{number}")


def test_two_who_pin_at_once_lose_nothing(tmp_path):
    folder_with(tmp_path, a=b"1")
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=_pin_many, args=(tmp_path, n)) for n in (0, 10)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(Manifest.read(tmp_path).pins) == 20
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.gguf", MANIFEST]


def test_a_model_is_forgotten_by_its_whole_name(tmp_path):
    manifest = folder_with(tmp_path, a=b"1")
    manifest.pin([tmp_path / "a.gguf"])
    with pytest.raises(UnknownModel):
        manifest.unpin("b")
    manifest.unpin("a")
    assert (Manifest.read(tmp_path).pins, (tmp_path / "a.gguf").exists()) == ({}, True)


def test_a_projector_is_pinned_and_verified_with_its_model(tmp_path):
    manifest = folder_with(tmp_path, a=b"weights", eyes=b"tower")
    manifest.pin([tmp_path / "a.gguf"], mmproj=tmp_path / "eyes.gguf")
    again = Manifest.read(tmp_path)
    assert again.pins == manifest.pins
    assert again.pins["a"].mmproj.file == "eyes.gguf"
    again.verify("a")
    (tmp_path / "eyes.gguf").write_bytes(b"towel")
    with pytest.raises(PinError, match="eyes"):
        again.verify("a")
    (tmp_path / "eyes.gguf").unlink()
    assert again.missing("a") == tmp_path / "eyes.gguf"
