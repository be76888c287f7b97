"""What a token costs around the C when the engine draws it: which time counts, and for what."""

import json
from dataclasses import replace

import numpy as np
import pytest

from golem_core.cpu.executor import Stats
from golem_core.model import open_decoder
from golem_core.sample import SamplerParams
from golem_core.schedule import Engine
from golem_core.schedule.dealer import Dealer
from golem_server.bench import main
from golem_server.bench.measure import Case
from golem_server.bench.report import row
from golem_server.bench.served import Begun, outside, served

PASS, IN_C, DEALING = 2.0, 1.5, 0.25  # seconds


class Slow:
    """An executor whose passes take PASS seconds of a clock that nothing else moves."""

    def __init__(self, executor):
        self.executor, self.now, self.inputs = executor, 0.0, []
        self.stats = Stats(1, IN_C, 0)

    def __getattr__(self, name):
        return getattr(self.executor, name)

    def run(self, inputs, wanted=("logits",)):
        self.inputs.append({name: array.copy() for name, array in inputs.items()})
        self.now += PASS
        return self.executor.run(inputs, wanted)


@pytest.fixture
def slow(tiny_model):
    model = open_decoder(tiny_model("llama"), context=64, parallel=3, executor="reference")
    model.executor = Slow(model.executor)
    yield model
    model.close()


@pytest.mark.parametrize("conversations", [1, 3])
def test_what_is_done_between_passes_counts_and_c_does_not(slow, conversations, monkeypatch):
    deal = Dealer.deal

    def dealing(dealer, *given):
        slow.executor.now += DEALING
        return deal(dealer, *given)

    monkeypatch.setattr(Dealer, "deal", dealing)
    prompts = [np.array([5 + i, 9, 7], np.int32) for i in range(conversations)]
    got = served(slow, prompts, 6, clock=lambda: slow.executor.now)
    assert got == pytest.approx(1e6 * (PASS - IN_C + DEALING) / conversations)


def test_all_conversations_draw_at_once_one_token_a_pass_by_the_default_sampler(slow, monkeypatch):
    asked = []
    submit = Engine.submit_all

    def submitting(engine, requests):
        asked.extend(requests)
        return submit(engine, requests)

    monkeypatch.setattr(Engine, "submit_all", submitting)
    served(slow, [np.array([5 + i, 9, 7], np.int32) for i in range(3)], 6, clock=lambda: 0.0)
    drawing = slow.executor.inputs[1:]  # the first pass reads the prompts
    assert [one["runs"][:, 3].tolist() for one in drawing] == [[i] * 3 for i in range(3, 10)]
    assert all(len(one["tokens"]) == 3 for one in drawing)
    assert len({one.params.seed for one in asked}) == 3
    silent = SamplerParams()  # of a request that names nothing
    assert [replace(one.params, seed=silent.seed, ignore_eos=False) for one in asked] == [
        silent
    ] * 3


def test_only_gaps_between_passes_in_which_all_draw_count():
    prompts = [Begun(0.0, 1.0, 2, 40), Begun(1.5, 1.0, 2, 9)]
    drawing = [Begun(3.0 + 1.5 * i, 1.0, 2, 2) for i in range(4)]
    alone = [Begun(20.0, 1.0, 1, 1), Begun(99.0, 1.0, 1, 1)]
    assert outside(prompts + drawing + alone, 2) == pytest.approx(0.5e6 / 2)
    assert outside(prompts + alone, 2) is None
    assert outside([], 1) is None


@pytest.mark.parametrize("depth", ["0", "5"])
def test_the_command_prints_it_beside_that_of_a_pass(tiny_model, depth, capsys):
    argv = ["-m", str(tiny_model("llama")), "-r", "1", "-p", "4", "-n", "2", "-d", depth]
    assert main([*argv, "-b", "1,3", "-o", "json"]) == 0
    read, *drawn = json.loads(capsys.readouterr().out)
    assert read["served_outside_us"] is None and read["outside_us"] is None
    assert len(drawn) == 2 and all(e["served_outside_us"] > 0 for e in drawn)
    assert main(argv) == 0
    head, _, last = capsys.readouterr().out.splitlines()
    assert "pass - C  served - C" in head and last.count(" µs") == 2


def test_it_is_left_out_where_asked(tiny_model, capsys):
    argv = ["-m", str(tiny_model("llama")), "-r", "1", "-p", "0", "-n", "2", "--no-served"]
    assert main([*argv, "-o", "json"]) == 0
    (drawn,) = json.loads(capsys.readouterr().out)
    assert drawn["served_outside_us"] is None and drawn["outside_us"] > 0


def test_the_help_says_what_each_figure_holds(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "served - C a drawn token's part of the time from one pass to the next" in told
    assert "nobody drafts; without HTTP" in told


@pytest.mark.parametrize(("case", "needed"), [(Case(8, 0, 5), 13), (Case(0, 3, 5), 10)])
def test_a_slot_has_room_for_what_is_drawn(case, needed):
    assert case.positions == needed


@pytest.mark.parametrize(
    ("share", "spread", "text"),
    [(0.9, 0.1, "90 %"), (0.9, 0.2, "90 %?"), (1.0, 0.1, "100 %"), (1.11, 0.1, "111 %?")],
)
def test_a_share_that_says_little_has_a_question_mark(share, spread, text):
    entry = {
        "model_type": "m", "model_size": 1, "model_n_params": 1, "n_threads": 1, "test": "tg1",
        "avg_ts": 1.0, "stddev_ts": 0.0, "pass_weight_bytes": 1, "read_share": share,
        "read_spread": spread, "outside_us": 1.0, "served_outside_us": None, "load_ns": 1,
    }  # fmt: skip
    assert row(entry)[7] == text
