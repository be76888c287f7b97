"""A prompt's own probabilities: the reference's log-softmax, however it is read."""

import numpy as np
import pytest

from golem_core.model import open_decoder
from golem_core.sample import SamplerParams
from golem_core.schedule import Engine, Request
from tests.core.schedule.fakes import GREEDY, WAIT, FakeModel, Gate, ask, together
from tests.plugins import tiny

LENGTH = 130  # more than the 64 columns that a pass scores


def prompt(seed, count=LENGTH):
    return np.random.default_rng(seed).integers(3, 470, count).tolist()


def truth(path, tokens):
    """(n - 1, V): natural logarithms of what the reference gives each token but the first."""
    executor = tiny.executor("reference", tiny.decoder(path), pass_width=len(tokens))
    logits = tiny.run(executor, (0, 0, tokens, 1))["logits"][:-1].astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def scores(tokens, n_probs=3, **fields):
    params = SamplerParams(seed=1, temperature=1, ignore_eos=True)
    request = {"params": params, "n_probs": n_probs, "max_tokens": 2, "scores_prompt": True}
    return Request(tokens, **request | fields)


def check(found, tokens, wanted, n_probs=3):
    """That these are the probabilities of the tokens: keys are kept in f16."""
    assert found[0] is None and len(found) == len(tokens)
    own = [one.drawn for one in found[1:]]
    assert own == pytest.approx(
        [row[t] for row, t in zip(wanted, tokens[1:], strict=True)], abs=0.03
    )
    for one, row in zip(found[1:], wanted, strict=True):
        assert len(one.top) == n_probs
        assert [value for _, value in one.top] == pytest.approx(
            np.sort(row)[: -n_probs - 1 : -1], abs=0.03
        )
        assert [value for _, value in one.top] == pytest.approx(
            [row[t] for t, _ in one.top], abs=0.03
        )


@pytest.fixture(params=["llama", "gemma3", "qwen35"])
def path(request, tmp_path):
    return tiny.write(tmp_path / "tiny.gguf", request.param)


@pytest.mark.parametrize("width", [48, 512])
def test_they_are_the_references_log_softmax_whatever_a_slot_holds(path, width):
    tokens = prompt(1)
    wanted = truth(path, tokens)
    with open_model(path, pass_width=width) as running:
        held = running.submit(Request(tokens, max_tokens=1, params=GREEDY)).wait(WAIT)
        assert (held.cached_tokens, running.stats.prompt_probs) == (0, 0)
        for limit in (3, 0):
            job = running.submit(scores(tokens, max_tokens=limit, only_reads=limit == 0))
            result = job.wait(WAIT)
            assert (result.drawn_tokens, result.finish_reason) == (limit, "length")
            assert (result.cached_tokens, result.fed_tokens) == (0, LENGTH)
            check(job.prompt_probs, tokens, wanted)
        assert running.stats.prompt_probs == 2 * (LENGTH - 1)
        assert running.stats.probs == 3
        after = running.submit(Request([*tokens, 7], max_tokens=1, params=GREEDY)).wait(WAIT)
        assert after.cached_tokens == LENGTH  # what was read for scores is as good as any


def open_model(path, **options):
    options = {"context": 512, "parallel": 1, "threads": 2, "pass_width": 48, **options}
    model = open_decoder(path, executor="cpu", **options)
    running = Engine(model)
    close = running.close
    running.close = lambda: (close(), model.close())
    return running


def test_answers_to_one_prompt_share_them_and_others_do_not(tmp_path):
    path = tiny.write(tmp_path / "tiny.gguf", "llama")
    tokens, other = prompt(1), prompt(1)[:-9] + prompt(2, 30)
    with open_model(path, parallel=4, context=2048) as running:
        asked = [scores(tokens), scores(tokens), scores(other, n_probs=1)]
        jobs = running.submit_all([*asked, Request(tokens, max_tokens=2, params=GREEDY)])
        results = [job.wait(WAIT) for job in jobs]
        for job in jobs[:2]:
            check(job.prompt_probs, tokens, truth(path, tokens))
        check(jobs[2].prompt_probs, other, truth(path, other), 1)
        assert jobs[3].prompt_probs == []
        assert results[1].fed_tokens == 0
        assert running.stats.prompt_probs == LENGTH - 1 + len(other) - 1


def test_a_pass_scores_no_more_columns_than_it_may():
    """Two prompts scored whole beside one that draws: 9 rows in all, and every token is told."""
    model = FakeModel(slots=3, scored=9, pass_width=32, context=512)
    with Engine(model) as engine:
        gate = Gate(model.executor)
        asked = [
            ask("draws for long", max_tokens=60, params=SamplerParams(seed=1, ignore_eos=True)),
            ask("x" * 60, max_tokens=0, scores_prompt=True, only_reads=True),
            ask("y" * 41, max_tokens=1, scores_prompt=True),
        ]
        jobs = together(engine, gate, asked)
        gate.open()
        results = [job.wait(WAIT) for job in jobs]
    assert max(len(seen.outputs) for seen in model.executor.seen) == 9
    assert [result.drawn_tokens for result in results] == [60, 0, 1]
    assert [len(job.prompt_probs) for job in jobs] == [0, 60, 41]


def test_they_are_there_before_the_first_token():
    model = FakeModel(scored=8, context=512)
    with Engine(model) as engine:
        job = engine.submit(ask("z" * 50, max_tokens=3, scores_prompt=True, n_probs=2))
        assert job.steps(WAIT)
        assert len(job.prompt_probs) == 50
        assert all(len(one.top) == 2 for one in job.prompt_probs[1:])


def test_a_prompt_of_one_token_has_nothing_to_tell():
    with Engine(FakeModel()) as engine:
        job = engine.submit(ask("a", max_tokens=0, scores_prompt=True, only_reads=True))
        assert job.wait(WAIT).drawn_tokens == 0
        assert job.prompt_probs in ([], [None])


def test_whoever_waited_for_a_reader_that_left_reads_anew():
    model = FakeModel(slots=2, scored=8, context=512)
    with Engine(model) as engine:
        gate = Gate(model.executor)
        asked = [ask("w" * 50, max_tokens=1, scores_prompt=True) for _ in range(2)]
        first, second = together(engine, gate, asked)
        first.cancel()
        gate.open()
        assert second.wait(WAIT).fed_tokens == 50
        assert len(second.prompt_probs) == 50
