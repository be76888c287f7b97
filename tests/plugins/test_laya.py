"""Laya: rows, logits and replies against the reference's, request by request."""

import json
import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from golem_core.cpu import features
from golem_core.formats.safetensors import Safetensors
from golem_core.model import ModelError
from golem_core.schedule import QueueFull
from golem_plugins.laya import command
from golem_plugins.laya.decider import Left, open_decider
from golem_plugins.laya.questions import Refused
from tests.plugins.laya_oracle import NAMES, assert_equal, body_of, cases, unpack


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("laya")
    return {name: unpack(name, folder) for name in NAMES}


@pytest.fixture(scope="module")
def deciders(folders):
    made = {name: open_decider(folders[name], threads=2) for name in NAMES}
    yield made
    for decider in made.values():
        decider.close()


QUESTION = {"q": {"type": "noul", "instructions": "Is it?"}}
ALL = [(name, case) for name in NAMES for case in cases(name)]
ANSWERED = [(name, case) for name, case in ALL if case["status"] == 200]
REFUSED = [(n, c) for n, c in ALL if c["status"] != 200 and c.get("request") is not None]


def named(listed):
    return pytest.mark.parametrize(
        ("name", "case"), listed, ids=[f"{name}-{case['name']}" for name, case in listed]
    )


def rows_of(decider, request):
    lengths = [
        request.get("max_len") or decider.agent.max_len,
        request.get("head_max_len") or decider.agent.head_max_len,
    ]
    return decider.rows(request["state"], request["questions"], *lengths)


@named(ANSWERED)
def test_the_reply_is_the_references(deciders, name, case):
    found = deciders[name].decide(case["request"])
    expected = dict(case["response"])
    assert list(found) == list(expected)
    assert found.pop("routing")["reason"] == "single checkpoint"
    expected.pop("routing")
    assert_equal(found, expected)


@named([(n, c) for n, c in ANSWERED if c.get("trace")])
def test_rows_are_the_references_and_logits_as_near_as_f32_allows(deciders, name, case):
    decider = deciders[name]
    rows = rows_of(decider, case["request"])
    for row, (logits, first), trace in zip(rows, decider._run(rows), case["trace"], strict=False):
        assert row.tokens.tolist() == trace["input_ids"]
        assert row.markers.tolist() == trace["markers"]
        np.testing.assert_allclose(logits, trace["logits"], atol=1e-4)
        acts = np.exp(np.array(trace["act_logits"]) - np.max(trace["act_logits"]))
        np.testing.assert_allclose(decider._act(first, logits), acts / acts.sum(), atol=1e-4)


@named(REFUSED)
def test_a_refusal_is_the_references_to_the_character_and_costs_no_pass(deciders, name, case):
    passes = deciders[name].stats.passes
    with pytest.raises(Refused) as refused:
        deciders[name].decide(case["request"])
    assert refused.value.status == case["status"]
    assert refused.value.detail == case["response"]["detail"]
    assert deciders[name].stats.passes == passes


@pytest.mark.parametrize("isa", features()["available"])
def test_every_instruction_set_answers_alike(folders, isa, monkeypatch):
    monkeypatch.setenv("GOLEM_CPU", isa)
    (case,) = [c for c in cases("tiny-en") if c["name"] == "three_types"]
    decider = open_decider(folders["tiny-en"], threads=2)
    found = decider.decide(case["request"])
    decider.close()
    assert_equal(found["answers"], case["response"]["answers"])


@pytest.mark.parametrize("kind", ["F32", "BF16"])
def test_weights_of_other_floats_are_computed_in_f32_too(folders, tmp_path, kind):
    """F32 answers as the F16 file it was widened from; BF16 as the reference on the same values."""
    folder = edited(folders["tiny-ml"], tmp_path, AGENT)
    restore(folder, kind)
    (case,) = [c for c in cases("tiny-ml") if c["name"] == "three_types"]
    decider, truth = open_decider(folder, threads=2), open_decider(folder, executor="reference")
    found, expected = decider.decide(case["request"]), truth.decide(case["request"])
    decider.close(), truth.close()
    assert_equal(found["answers"], expected["answers"])
    if kind == "F32":
        assert_equal(found["answers"], case["response"]["answers"])


def restore(folder, kind):
    """Writes the checkpoint's weights anew, in another float."""
    with Safetensors.open(folder / "model.safetensors") as checkpoint:
        arrays = {name: checkpoint.numpy(name).astype(np.float32) for name in checkpoint.tensors}
    header, blobs, at = {}, [], 0
    for name, array in arrays.items():
        bits = array.view(np.uint32)
        data = array if kind == "F32" else ((bits + 0x8000) >> 16).astype("<u2")
        blobs.append(data.tobytes())
        span = [at, at + len(blobs[-1])]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": span}
        at = span[1]
    text = json.dumps(header).encode()
    blob = len(text).to_bytes(8, "little") + text + b"".join(blobs)
    (folder / "model.safetensors").write_bytes(blob)


def test_the_reference_executor_answers_alike(folders):
    (case,) = [c for c in cases("tiny-ml") if c["name"] == "three_types"]
    decider = open_decider(folders["tiny-ml"], executor="reference")
    found = decider.decide(case["request"])
    decider.close()
    assert_equal(found["answers"], case["response"]["answers"])


def test_requests_that_wait_share_passes_and_answers_do_not_change(folders):
    decider = open_decider(folders["tiny-en"], threads=2, queue=64)
    requests = [c["request"] for n, c in ANSWERED if n == "tiny-en"][:24]
    expected = [decider.decide(request) for request in requests]
    found = [None] * len(requests)
    before = decider.stats.passes

    def ask(i):
        found[i] = decider.decide(requests[i])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected
    assert decider.stats.passes <= before + len(requests)
    decider.close()


def test_one_more_than_may_wait_is_refused(folders):
    decider = open_decider(folders["tiny-ml"], threads=1, queue=1)
    entered, hold, run = threading.Semaphore(0), threading.Event(), decider._batcher._run

    def held(items):
        entered.release()
        assert hold.wait(30)
        return run(items)

    decider._batcher._run = held
    request = {"state": "s", "questions": QUESTION}
    running = threading.Thread(target=decider.decide, args=(request,))
    running.start()
    assert entered.acquire(timeout=30)
    waiting = decider._batcher.submit(decider.rows("s", QUESTION, 160, 80), [1])
    with pytest.raises(QueueFull):
        decider.decide(request)
    hold.set()
    running.join()
    assert len(waiting.all()) == 1
    decider.close()


def test_a_batch_answers_every_state_as_alone(deciders):
    decider = deciders["tiny-en"]
    questions = {"q": {"type": "noul", "instructions": "Is it about money?"}}
    states = ["I was charged twice", {"a": [1, 2]}, ["turn one", "turn two"]]
    batch = decider.decide_batch({"states": states, "questions": questions})
    alone = [decider.decide({"state": s, "questions": questions}) for s in states]
    assert batch["results"] == alone
    used = sum(one["usage"]["input_tokens"] for one in alone)
    assert batch["total_usage"] == {"input_tokens": used, "output_tokens": 0}


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (
            {"states": []},
            400,
            "request body must be an object with 'states' and 'questions' fields",
        ),
        ({"states": [], "questions": QUESTION}, 400, "'states' must be a non-empty list"),
        (
            {"states": ["a"] * 65, "questions": QUESTION},
            413,
            "too many states in batch (65 > 64)",
        ),
        ({"states": ["a", None], "questions": QUESTION}, 400, "'state' is required"),
        (
            {"states": ["a"], "questions": QUESTION, "batch_size": True},
            422,
            "batch_size must be an integer",
        ),
        (
            {"states": ["a"], "questions": QUESTION, "batch_size": 0},
            422,
            "batch_size must be a positive integer, got 0",
        ),
        (
            {"states": ["a"], "questions": QUESTION, "sort_by_length": 1},
            422,
            "sort_by_length must be a boolean",
        ),
    ],
)
def test_a_batch_is_refused_in_the_references_words(deciders, body, status, detail):
    with pytest.raises(Refused) as refused:
        deciders["tiny-en"].decide_batch(body)
    assert (refused.value.status, refused.value.detail) == (status, detail)


def ask(**fields):
    return {"state": "s", "questions": {"q": {"type": "noul", "instructions": "x", **fields}}}


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (
            {"state": "s", "questions": {f"q{i}": QUESTION["q"] for i in range(65)}},
            413,
            "too many questions (65 > 64)",
        ),
        ({"state": "x" * 50001, "questions": {}}, 413, "state too large (50001 > 50000 chars)"),
        (
            {"state": "s", "questions": QUESTION, "hooks": [], "hooks_timeout": 1},
            422,
            "hooks, hooks_timeout run inside the server process and cannot be sent to this "
            "endpoint; install them where laya-serve runs, or drop them",
        ),
        (
            {"state": "\ud800", "questions": QUESTION},
            400,
            "request body contains an unpaired surrogate escape; those cannot be encoded as UTF-8",
        ),
        (
            {"state": "s", "questions": QUESTION, "min_confidence": {}},
            422,
            "a min_confidence map must be a non-empty dict of bucket -> float, got {}",
        ),
        (
            {"state": "s", "questions": QUESTION, "min_confidence": {"noul:9": 0.5}},
            422,
            "min_confidence map keys must be a bucket like 'choice:3-5' or 'default', got 'noul:9'",
        ),
        (
            {"state": "s", "questions": QUESTION, "min_confidence": 1.5},
            422,
            "min_confidence must be a float in [0.0, 1.0], got 1.5",
        ),
        (
            ask(type="choice", criteria=["a"], labels={"false": "a", "true": "b"}),
            422,
            "question 'q': 'labels' is only supported for noul questions",
        ),
        (
            ask(labels={"false": "a", "true": " a "}),
            422,
            "question 'q': noul labels must map exactly 'false' and 'true' to distinct non-empty "
            "strings",
        ),
        (
            ask(type="choice", criteria=["a", ["b"]]),
            422,
            "question 'q': choice label 1 is a list; a label is rendered as option text and used "
            "as the answer key, so it must be a scalar (a string, number or bool), got ['b']",
        ),
        (
            {"state": "s", "questions": {"q": {"type": "noul"}}},
            422,
            "question 'q': no 'instructions'; add the text the model should answer",
        ),
    ],
)
def test_other_refusals_are_in_the_references_words(deciders, body, status, detail):
    with pytest.raises(Refused) as refused:
        deciders["tiny-en"].decide(body)
    assert (refused.value.status, refused.value.detail) == (status, detail)


def test_options_that_do_not_fit_are_counted_in_the_refusal(deciders):
    body = ask(type="choice", criteria=[f"o{i}" for i in range(60)]) | {"max_len": 100}
    with pytest.raises(Refused) as refused:
        deciders["tiny-en"].decide(body)
    # Before the options are [CLS], 8 tokens of the question and [SEP]; an option has 2 to 4 tokens.
    fitting = int(re.search(r"only (\d+) of", refused.value.detail)[1])
    assert 90 // 4 <= fitting <= 90 // 2
    assert refused.value.status == 422
    assert refused.value.detail == (
        f"question 'q': only {fitting} of its 60 option markers fit in max_len=100 with "
        "head_max_len=64 spent on the question; lower head_max_len, raise max_len, or use fewer "
        "options"
    )


def test_who_has_hung_up_gets_nothing(deciders):
    request = {"state": "s", "questions": {}}
    assert deciders["tiny-en"].decide(request, gone=lambda: True)["answers"] == {}
    # The batcher is asked first whether a result is there; without one the wait ends.
    decider = deciders["tiny-en"]
    running = threading.Event()
    hold = threading.Event()
    run = decider._batcher._run

    def held(items):
        running.set()
        assert hold.wait(30)
        return run(items)

    decider._batcher._run = held
    try:
        first = threading.Thread(target=decider.decide, args=({"state": "s", **_asked()},))
        first.start()
        assert running.wait(30)
        with pytest.raises(Left):
            decider.decide({"state": "s", **_asked()}, gone=lambda: True)
    finally:
        hold.set()
        first.join()
        decider._batcher._run = run


def _asked():
    return {"questions": QUESTION}


# ---- checkpoints that do not fit


def edited(folder, tmp_path, file, **changes):
    """A copy of a checkpoint with another configuration; None takes a key out."""
    copy = tmp_path / "copy"
    for source in sorted(folder.rglob("*")):
        if source.is_file():
            target = copy / source.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    values = json.loads((copy / file).read_text())
    values |= changes
    kept = {key: value for key, value in values.items() if value is not None}
    (copy / file).write_text(json.dumps(kept))
    return copy


AGENT, ENCODER = "rl_agent_config.json", "encoder/config.json"
TOKENIZER = "tokenizer/tokenizer.json"


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        (AGENT, {"encoder": None}, "encoder is missing"),
        (AGENT, {"head_layers": None}, "head_layers is missing"),
        (AGENT, {"head_layers": 3}, "no tensor head.layers.2"),
        (AGENT, {"head_layers": 1}, "head.layers.1.*is no tensor of a Laya checkpoint"),
        (AGENT, {"temperature": [1, 1]}, "a list of three numbers"),
        (AGENT, {"option_layout": "parallel"}, '"sequential", the layout'),
        (AGENT, {"act_costs": {}}, "act_head.2.*has the shape"),
        (AGENT, {"max_len": "x"}, "max_len is 'x'"),
        (ENCODER, {"num_attention_heads": 5}, "a divisor of the width 64"),
        (ENCODER, {"hidden_size": 128}, "has the shape"),
        (ENCODER, {"num_hidden_layers": 5}, "no tensor encoder.layers.4"),
        (ENCODER, {"layer_types": ["full_attention"]}, "4 of full_attention and sliding"),
        (ENCODER, {"norm_bias": True}, "lacks encoder.embeddings.norm.bias, but norm_bias"),
        (ENCODER, {"attention_bias": True}, "lacks encoder.layers.0.attn.Wqkv.bias, but attention"),
        (ENCODER, {"mlp_bias": True}, "lacks encoder.layers.0.mlp.Wi.bias, but mlp_bias"),
        ("tokenizer/tokenizer_config.json", {"mask_token": "[x]"}, "no token '\\[x\\]'"),
        ("tokenizer/tokenizer.json", {"model": {"type": "Unigram"}}, "golem reads BPE"),
        ("tokenizer/tokenizer.json", {"normalizer": {"type": "Odd"}}, "type 'Odd'"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_by_name(
    folders, tmp_path, file, changes, message
):
    with pytest.raises(ModelError, match=message):
        open_decider(edited(folders["tiny-ml"], tmp_path, file, **changes))


def test_a_tokenizer_with_more_ids_than_the_encoder_has_rows_is_refused(folders, tmp_path):
    source = json.loads((folders["tiny-ml"] / TOKENIZER).read_text())
    size = json.loads((folders["tiny-ml"] / ENCODER).read_text())["vocab_size"]
    added = [*source["added_tokens"], {"id": size, "content": "<beyond>", "special": True}]
    copy = edited(folders["tiny-ml"], tmp_path, TOKENIZER, added_tokens=added)
    with pytest.raises(ModelError, match=f"has the id {size}, but vocab_size .* is {size}"):
        open_decider(copy)


def test_a_directory_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(ModelError, match="is no directory"):
        open_decider(tmp_path / "none")
    with pytest.raises(ModelError, match=r"does not contain 'rl_agent_config.json'"):
        open_decider(tmp_path)
    (tmp_path / AGENT).write_text("{}")
    with pytest.raises(ModelError, match=r"'model.safetensors' not found"):
        open_decider(tmp_path)


# ---- the command


def test_the_command_prints_the_reply(folders, tmp_path, capsys):
    (case,) = [c for c in cases("tiny-ml") if c["name"] == "three_types"]
    request, bad = tmp_path / "request.json", tmp_path / "bad.json"
    request.write_bytes(body_of(case))
    bad.write_text('{"state": "s"}')
    assert command.main(["-laya", str(folders["tiny-ml"]), str(request)]) == 0
    assert_equal(json.loads(capsys.readouterr().out)["answers"], case["response"]["answers"])
    assert command.main(["-laya", str(folders["tiny-ml"]), str(bad)]) == 1
    assert "must be an object with a 'questions' field" in capsys.readouterr().err


def test_the_command_says_what_is_wrong_with_its_words(capsys, monkeypatch):
    monkeypatch.delenv("GOLEM_LAYA", raising=False)
    for words in ([], ["x.json"], ["-nope", "1"], ["-laya", "d", "-threads", "0", "x"]):
        assert command.main(words) == 2
        assert capsys.readouterr().err
    assert command.main(["-laya", "/none", "x.json"]) == 1
    assert "is no directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("request_text", "message"),
    [
        (b"{", "is not JSON: "),
        (b"\xff", "is not JSON: "),
        (b"[" * 100_000, "is not JSON: "),
        (None, "No such file or directory"),
        # An infinite label is no key of a JSON object.
        (
            b'{"state": "s", "questions": {"q": {"type": "choice", "instructions": "i", '
            b'"criteria": [1e400, 1]}}}',
            "Out of range float values are not JSON compliant",
        ),
    ],
)
def test_a_request_that_cannot_be_answered_costs_the_command_one_line(
    folders, tmp_path, capsys, request_text, message
):
    file = tmp_path / "request.json"
    if request_text is not None:
        file.write_bytes(request_text)
    assert command.main(["-laya", str(folders["tiny-ml"]), str(file)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"golem-laya: {file}: {message}")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_reply_that_cannot_be_written_costs_the_command_one_line(folders, tmp_path):
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"state": "s", **_asked()}))
    words = [sys.executable, "-m", "golem_plugins.laya.command", "-laya", folders["tiny-ml"]]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run([*words, request], stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert ended.stderr.startswith("golem-laya: the reply cannot be written: ")
    assert ended.stderr.count("\n") == 1
