"""golem-inspect: what it says of a file, as text and as JSON, and of files it cannot read."""

import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from golem_core.formats.blocks import by_name, random_blocks
from golem_core.formats.gguf import GGUF, write_gguf
from golem_core.model.about import about
from golem_server.commands import CUT
from golem_server.inspect import main
from tests.embedding import write_tiny
from tests.paths import smollm2
from tests.plugins import tiny


@pytest.fixture
def model(tmp_path):
    rng = np.random.default_rng(0)
    q4 = by_name("Q4_0")
    tensors = [(f"blk.{i}.w", (64, 32), q4, random_blocks((64, 32), q4, rng)) for i in range(2)]
    tensors.append(("norm", (32,), by_name("F32"), np.ones(32, np.float32)))
    keys = {
        "general.architecture": "llama",
        "eps": 1e-5,
        "words": [f"w{i}" for i in range(1000)],
        "scores": np.array([0.1, float("nan")], np.float32),
        "nested": [[1, 2], [3]],
        "template": "a" * 40 + "\n" + "b" * 400,
        "odd\x1b[31m": "bell \x07",
    }
    return write_gguf(tmp_path / "m.gguf", keys, tensors)


def run(capsys, *arguments) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_text_shows_metadata_tensors_types_and_totals(capsys, model):
    status, out, err = run(capsys, model)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert (status, err) == (0, "")
    assert lines[0] == f"{model}: GGUF, version 3, alignment 32"
    assert 'general.architecture str "llama"' in lines
    assert "eps f32 1e-05" in lines
    assert 'words str[1000] ["w0", "w1", "w2", "w3", "w4", "w5", …]' in lines
    assert 'scores f32[2] [0.1, "nan"]' in lines
    assert "nested array[2] [[1, 2], [3]]" in lines
    assert f'template str "{"a" * 40}\\n{"b" * 31}"…' in lines
    assert "blk.0.w Q4_0 64 x 32 1.1 KiB" in lines
    assert "norm F32 32 128 B" in lines
    assert "Q4_0 2 tensors 4,096 weights 2.2 KiB 4.50 bits" in lines
    assert "F32 1 tensor 32 weights 128 B 32.00 bits" in lines
    assert lines[-1].startswith("total: 4,128 parameters, 2.4 KiB of tensors in files of ")


def test_nothing_of_the_file_reaches_the_terminal_unescaped(capsys, model):
    _, out, _ = run(capsys, model)
    assert "odd\\x1b[31m" in out
    assert '"bell \\u0007"' in out
    assert all(c.isprintable() or c == "\n" for c in out)


def test_filters_show_only_what_was_asked_for(capsys, model):
    for flag, shown in (("--metadata", "eps"), ("-tensors", "blk.1.w"), ("--types", "total:")):
        _, out, _ = run(capsys, model, flag)
        assert [word for word in ("eps", "blk.1.w", "total:") if word in out] == [shown]


def test_json_is_one_object_with_exact_numbers(capsys, model):
    status, out, _ = run(capsys, model, "--json")
    shown = json.loads(out)
    assert status == 0
    assert (shown["format"], shown["version"], shown["alignment"]) == ("GGUF", 3, 32)
    assert shown["files"] == [str(model)]
    assert shown["metadata"]["eps"] == {"type": "f32", "value": 1e-5}
    words = {"type": "str[1000]", "count": 1000, "first": ["w0", "w1", "w2", "w3", "w4", "w5"]}
    assert shown["metadata"]["words"] == words
    assert shown["metadata"]["scores"]["value"] == [0.1, "nan"]
    assert shown["tensors"][0] == {
        "name": "blk.0.w",
        "type": "Q4_0",
        "shape": [64, 32],
        "parameters": 2048,
        "bytes": 1152,
    }
    assert shown["types"]["Q4_0"] == {"tensors": 2, "parameters": 4096, "bytes": 2304, "bits": 4.5}
    assert (shown["parameters"], shown["bytes"]) == (4128, 2432)
    assert shown["file_bytes"] == model.stat().st_size
    assert "tensors" not in json.loads(run(capsys, model, "--json", "--metadata")[1])


def test_it_tells_whether_a_file_can_be_played_and_why_not(capsys, tmp_path, model):
    """In the words of golem-models list and /api/tags."""
    good = tiny.write(tmp_path / "good.gguf", "llama")
    eyes = write_gguf(tmp_path / "eyes.gguf", {"general.architecture": "clip"}, [])
    foreign = write_gguf(
        tmp_path / "foreign.gguf",
        {"general.architecture": "abacus"},
        [("t", (4,), by_name("F32"), np.zeros(4, np.float32))],
    )
    for path, word in (
        (good, ""),
        (model, "llama.context_length"),
        (write_tiny(tmp_path), "give it to -embed"),
        (eyes, "projector"),
        (foreign, "abacus"),
    ):
        reason = about(path).reason
        assert bool(reason) == bool(word) and word in reason
        lines = run(capsys, path)[1].splitlines()
        assert lines[1] == (f"cannot be played: {reason}" if reason else "can be played")
        shown = json.loads(run(capsys, path, "--json")[1])
        assert shown["golem"] == {"playable": not reason, "reason": reason}
        assert ("gives" in lines[2]) == ("-embed" in reason)


def test_it_tells_whether_an_encoder_gives_vectors_and_why_not(capsys, tmp_path):
    whole = write_tiny(tmp_path)
    assert run(capsys, whole)[1].splitlines()[2] == "gives vectors"
    with GGUF.open(whole) as file:
        key = f"{file.architecture}.block_count"
    short = tiny.rewrite(whole, tmp_path / "short.gguf", {key: None})
    line = run(capsys, short)[1].splitlines()[2]
    assert line.startswith("gives no vectors: ") and key in line
    odd = write_gguf(tmp_path / "odd.gguf", {"general.architecture": ["bert"]}, [])
    assert run(capsys, odd)[0] == 0


def test_key_prints_a_value_in_full(capsys, model):
    assert run(capsys, model, "--key", "template")[1] == "a" * 40 + "\n" + "b" * 400 + "\n"
    assert json.loads(run(capsys, model, "-key", "words")[1])[999] == "w999"
    status, out, err = run(capsys, model, "--key", "none")
    assert (status, out) == (1, "")
    assert err == f"golem-inspect: {model}: has no metadata key none\n"


def test_split_files_are_listed(capsys, tmp_path):
    tensors = [(f"t{i}", (4,), by_name("F32"), np.zeros(4, np.float32)) for i in range(2)]
    path = write_gguf(tmp_path / "m.gguf", {}, tensors, parts=2)
    out = run(capsys, path)[1]
    assert "  and m-00002-of-00002.gguf" in out.splitlines()
    assert "total: 8 parameters" in out


def test_safetensors_files_and_folders(capsys, tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"t": np.zeros((2, 3), np.float16), "s": np.float32(1)[...]}, path, {"format": "pt"})
    for argument in (path, tmp_path):
        out = [" ".join(line.split()) for line in run(capsys, argument)[1].splitlines()]
        assert out[0] == f"{path}: safetensors"
        assert 'format str "pt"' in out
        assert "t F16 2 x 3 12 B" in out
        assert "s F32 scalar 4 B" in out


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (None, "cannot be opened: no such file or directory"),
        (b"", "is empty"),
        (b"#!/bin/sh\n", "is not GGUF: it begins with b'#!/b', not b'GGUF'"),
        (b"GGUF\x03\0\0\0", "ends inside the counts of tensors and keys at byte 8"),
    ],
)
def test_a_file_it_cannot_read_is_one_line_and_status_1(capsys, tmp_path, contents, expected):
    path = tmp_path / "bad.gguf"
    if contents is not None:
        path.write_bytes(contents)
    status, out, err = run(capsys, path)
    assert (status, out) == (1, "")
    assert err.startswith(f"golem-inspect: {path}: {expected}")
    assert err.count("\n") == 1


def test_a_reader_that_stops_early_ends_it_without_a_word(tmp_path):
    tensors = [(f"t{i}", (1,), by_name("F32"), np.zeros(1, np.float32)) for i in range(5000)]
    path = write_gguf(tmp_path / "m.gguf", {}, tensors)
    command = [sys.executable, "-m", "golem_server.inspect", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline().endswith(b"alignment 32\n")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == CUT


def test_nothing_is_no_file(capsys):
    assert main([""]) == 1
    assert capsys.readouterr().err == "golem-inspect: which file? its name is empty\n"


@pytest.mark.real
def test_a_real_model(capsys):
    shown = json.loads(run(capsys, smollm2(), "--json")[1])
    assert shown["parameters"] == 134_515_008
    assert shown["metadata"]["llama.block_count"] == {"type": "u32", "value": 30}
    assert shown["metadata"]["tokenizer.ggml.tokens"]["count"] == 49152
    assert set(shown["types"]) == {"F32", "Q4_1", "Q8_0"}
