"""``golem-models``."""

import shutil

import pytest

from golem_core.pins import Manifest
from golem_server import pinning
from tests.plugins import tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.write(tmp_path_factory.mktemp("model") / "Tiny-F32.gguf", "llama")


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GOLEM_MODELS", str(tmp_path))

    def command(*arguments):
        status = pinning.main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return command


def test_add_list_verify_unpin(run, tmp_path, model):
    status, out, _ = run("add", model)
    pin = Manifest.read(tmp_path).pins["tiny-f32"]
    assert (status, pin.sha256 in out) == (0, True)
    assert (tmp_path / model.name).read_bytes() == model.read_bytes()
    status, out, _ = run("list")
    assert status == 0
    assert out.startswith("tiny-f32: llama, F32, ")
    assert run("verify", "tiny")[0] == run("verify")[0] == 0
    status, out, err = run("add", model)
    assert (status, "is there already" in err) == (1, True)
    assert run("unpin", "tiny-f32")[0] == 0
    assert run("list")[1] == ""


def test_what_cannot_be_pinned_is_not_left_in_the_folder(run, tmp_path, model):
    status, _, err = run("add", model, "-name", "a/b")
    assert (status, "'a/b' cannot be a model's name" in err) == (1, True)
    assert not (tmp_path / model.name).exists()
    assert run("add", model, "-name", "ab")[0] == 0


def test_a_file_that_was_changed_is_told(run, tmp_path, model):
    shutil.copy(model, tmp_path / "m.gguf")
    assert run("pin", tmp_path / "m.gguf", "-name", "mine")[0] == 0
    with open(tmp_path / "m.gguf", "r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))
    status, out, _ = run("verify")
    assert status == 1
    assert out.startswith("mine: NOT what was pinned: ")


def test_what_cannot_be_played_is_listed_with_the_reason(run, tmp_path, model):
    for name, change in (("cut", lambda b: b[:-4096]), ("foreign", lambda b: b"MZ" + b[2:])):
        path = tmp_path / f"{name}.gguf"
        shutil.copy(model, path)
        run("pin", path)
        path.write_bytes(change(model.read_bytes()))
    lines = run("list")[1].splitlines()
    assert [line.split(":")[0] for line in lines] == ["cut", "foreign"]
    assert all("cannot be played: " in line for line in lines)
    (tmp_path / "cut.gguf").unlink()
    assert "cut.gguf is not on this machine" in run("list")[1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["pin", "/nowhere.gguf"], "cannot be opened"),
        (["pin", "/dev/null"], "not a regular file"),
        (["verify", "x"], "model 'x' not found"),
        (["unpin", "x"], "not found"),
        (["list", "-models", "/nowhere"], "is no folder"),
    ],
)
def test_what_cannot_be_done_is_one_line(run, arguments, text):
    status, out, err = run(*arguments)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert text in err


def test_without_a_folder(run, monkeypatch):
    monkeypatch.delenv("GOLEM_MODELS")
    status, _, err = run("list")
    assert (status, err) == (
        1,
        "golem-models: which folder? pass -models DIR or set GOLEM_MODELS\n",
    )


def test_a_projector_goes_with_its_model(run, tmp_path, model):
    eyes = tmp_path.parent / f"{tmp_path.name}-eyes.gguf"
    shutil.copy(model, eyes)
    assert run("add", model, "-mmproj", eyes)[0] == 0
    assert (tmp_path / eyes.name).read_bytes() == eyes.read_bytes()
    assert Manifest.read(tmp_path).pins["tiny-f32"].mmproj.file == eyes.name
    assert "with a projector" in run("list")[1]
