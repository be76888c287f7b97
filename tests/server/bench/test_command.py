"""The command: what it prints, and one line for what it cannot do."""

import json
import re

import pytest

from golem_core.model import open_decoder
from golem_server.bench import command as bench
from golem_server.bench import main
from golem_server.bench.measure import Bench, Case
from tests.plugins import tiny


@pytest.fixture
def model(tiny_model):
    return str(tiny_model("llama"))


def run(*argv):
    return main(["-r", "2", "-p", "8", "-n", "3", "--executor", "reference", *argv])


def test_json_has_llama_benchs_fields_and_consistent_figures(model, capsys):
    assert run("-m", model, "-o", "json", "-d", "0,5", "-b", "1,2") == 0
    entries = json.loads(capsys.readouterr().out)
    assert [e["test"] for e in entries] == [
        "pp8", "tg3", "2x tg3", "pp8 @ d5", "tg3 @ d5", "2x tg3 @ d5",
    ]  # fmt: skip
    for e in entries:
        assert (e["model_type"], e["model_filename"]) == ("llama tiny F32", model)
        assert e["n_depth"] == (5 if "@" in e["test"] else 0)
        assert len(e["samples_ns"]) == len(e["samples_ts"]) == 2
        tokens = e["n_conversations"] * (e["n_prompt"] + e["n_gen"])
        for ns, rate in zip(e["samples_ns"], e["samples_ts"], strict=True):
            assert rate == pytest.approx(tokens / ns * 1e9, rel=1e-3)
        assert e["avg_ts"] == pytest.approx(sum(e["samples_ts"]) / 2)
        assert e["read_share"] is None  # the reference executor keeps no account of its reads


def test_the_cpu_executor_tells_what_share_of_a_plain_read_drawing_reaches(model, capsys):
    argv = ["-m", model, "-r", "2", "-p", "8", "-n", "3", "-t", "1,2", "-o", "json"]
    assert main(argv) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [(e["test"], e["n_threads"]) for e in entries] == [
        ("pp8", 1), ("tg3", 1), ("pp8", 2), ("tg3", 2),
    ]  # fmt: skip
    for e in entries:
        drawn = e["n_gen"] > 0
        assert all(
            (e[key] is not None) == drawn
            for key in ("read_share", "outside_us", "pass_weight_bytes")
        )
        assert not drawn or (e["read_share"] > 0 and e["outside_us"] > 0)


def test_a_profile_tells_where_a_repeats_time_goes_by_op(model, capsys):
    argv = ["-m", model, "-r", "3", "-p", "40", "-n", "3", "-w", "16", "-t", "1", "--profile"]
    assert main([*argv, "-o", "json"]) == 0
    for e in json.loads(capsys.readouterr().out):
        seconds = e["profile"]
        assert 0 < sum(seconds.values()) <= e["avg_ns"] / 1e9
        matrices = {what for what, spent in seconds.items() if spent and "ffn_down" in what}
        assert matrices == {"linear blk.*.ffn_down.weight"}  # of all blocks together
    assert main(argv) == 0
    printed = capsys.readouterr().out
    assert "\n\npp40, 1 threads: " in printed and "\n\ntg3, 1 threads: " in printed
    assert "%  linear blk.*.ffn_down.weight\n" in printed


def test_a_profile_of_an_executor_without_one_is_refused(model, capsys):
    assert run("-m", model, "--profile") == 1
    assert "keeps no account of where its time goes" in capsys.readouterr().err


def test_a_prompt_of_one_token_and_no_answer_is_measured(model, capsys):
    assert run("-m", model, "-p", "1", "-n", "0", "-o", "json") == 0
    assert [e["test"] for e in json.loads(capsys.readouterr().out)] == ["pp1"]


def test_pass_widths_are_measured_in_turn(model, capsys):
    assert run("-m", model, "-w", "4,8", "-n", "0", "-o", "json") == 0
    entries = json.loads(capsys.readouterr().out)
    assert [(e["test"], e["n_ubatch"]) for e in entries] == [("pp8", 4), ("pp8", 8)]


@pytest.mark.parametrize(("warm", "runs"), [(True, 3), (False, 2)])
def test_a_depth_is_read_once_for_all_tests_that_begin_there(model, warm, runs):
    columns = []
    opened = open_decoder(model, context=80, parallel=2, pass_width=8, executor="reference")
    run = opened.executor.run
    opened.executor.run = lambda given, wanted=(): (
        columns.append([tuple(row[[0, 3]]) for row in given["runs"]]) or run(given, wanted)
    )
    measuring = Bench(opened)
    measuring.run(Case(4, 0, 16), 2, warm)
    assert columns == [[(0, 0)], [(0, 8)]] + [[(0, 16)]] * runs
    columns.clear()
    measuring.run(Case(0, 1, 16, 2), 2, warm)  # the second slot has nothing yet
    assert columns == [[(1, 0)], [(1, 8)]] + [[(0, 16), (1, 16)]] * runs
    columns.clear()
    measuring.run(Case(0, 1, 0, 1), 2, warm)
    measuring.run(Case(0, 1, 8, 1), 2, warm)
    assert columns == [[(0, 0)]] * runs + [[(0, 0)]] + [[(0, 8)]] * runs
    measuring.close()
    opened.close()


def test_a_table_has_a_line_a_test_and_markdown_its_rules(model, capsys):
    assert run("-m", model) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and "t/s" in lines[0] and "pp8" in lines[1] and "tg3" in lines[2]
    assert run("-m", model, "-o", "md") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all(line.startswith("| ") for line in lines)
    assert set(lines[1]) <= set("|-: ")


def test_random_weights_are_measured_and_kept_where_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(bench.SHAPES, "tiny", tiny.SHAPES["qwen3"])
    kept = tmp_path / "kept.gguf"
    assert run("--random", "tiny:q4_0", "--write", str(kept), "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)[0]["model_type"] == "qwen3 tiny Q4_0"
    size = kept.stat().st_size
    assert main(["--random", "tiny:q8_0", "--write", str(kept), "-p", "0", "-n", "0"]) == 0
    assert capsys.readouterr().out == "" and kept.stat().st_size > size


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        ([], "give a model with -m FILE, or random weights with --random"),
        (["-m", "a", "--random", "qwen3-4b"], "-m and --random are two models to measure"),
        (["-m", ""], "-m names no file"),
        (["-m", "a", "--blocks", "2"], "--blocks cuts what --random makes"),
        (["--random", "qwen3-4b", "--blocks", "99"], "--blocks 99: a model of 4B has 1 to 36"),
        (["-m", "a", "-b", "16777216", "-n", "512"], "conversations (-b) of 515 positions"),
        (["-m", "a", "--write", "b"], "--write keeps what --random made"),
        (["-m", "/nowhere.gguf"], "/nowhere.gguf"),
        (["--random", "qwen9"], "there are qwen3-0.6b"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_1(argv, text, capsys):
    assert main(argv) == 1
    error = capsys.readouterr().err
    assert error.startswith("golem-bench: ") and text in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["-p", "x"], "'x' is no whole number"),
        (["-b", "0"], "'0': it must be at least 1"),
        (["-r", "1,2"], "'1,2' is no whole number"),
        (["-n", "-3"], "'-3': it must be at least 0"),
        (["--blocks", "0"], "argument --blocks: '0': it must be at least 1"),
        (["--blocks", "-1"], "argument --blocks: '-1': it must be at least 1"),
        (["--blocks", "few"], "argument --blocks: 'few' is no whole number"),
        (["-t", "1,5000"], "5000 threads: this process may use "),
    ],
)
def test_a_bad_number_is_a_usage_error(argv, says, capsys):
    with pytest.raises(SystemExit) as left:
        main(["-m", "a", f"{argv[0]}={argv[1]}" if argv[0][1] == "-" else "".join(argv)])
    error = capsys.readouterr().err
    assert left.value.code == 1 and says in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("left_over", "says"),
    [(-1, "fewer --blocks of --random"), (1 << 20, r"-d, -p and -n that come to \d+ positions")],
)
def test_what_memory_is_too_short_for_is_told_in_flags_that_there_are(
    model, left_over, says, monkeypatch, capsys
):
    needs = open_decoder(model, context=256, executor="reference")
    limit = needs.estimate.weights + needs.estimate.arena + left_over
    needs.close()
    monkeypatch.setattr("golem_core.model.open.memory_limit", lambda: limit)
    assert run("-m", model, "-d", "1000000") == 1
    error = capsys.readouterr().err
    assert "control group" in error and re.search(says, error) and "-context" not in error
