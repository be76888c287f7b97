"""The same conversation cut in different ways gives the same logits.

On the cpu executor a column's bits follow from its own tokens and its role alone; numpy's products
round differently with the number of rows, so the reference executor is held to a tolerance.
"""

import itertools

import numpy as np
import pytest

from golem_core.cpu import features
from tests.plugins import tiny
from tests.rounding import ROOM, columns_rounded, median_distance, prompt_rule

# Windows of 16 are shorter than the prompts; gemma4-e2b's last blocks share the keys of others.
MODELS = ("llama", "qwen3moe", "gemma3", "gemma4-e2b", "qwen35", "gemma4-moe")


def same(kind, found, wanted):
    if kind == "cpu":
        np.testing.assert_array_equal(found, wanted)
    else:
        assert tiny.relative_rms(found, wanted) < 1e-5


CASES = [("reference", m, "F32") for m in MODELS]
CASES += [("cpu", m, t) for m in MODELS for t in ("F32", "Q8_0")]


@pytest.fixture(params=CASES, ids="-".join)
def case(request):
    return request.param


@pytest.fixture
def kind(case):
    return case[0]


@pytest.fixture
def model(case, tiny_model):
    return tiny.decoder(tiny_model(*case[1:]))


@pytest.fixture
def opened(kind, model):
    """opened(slots=…) -> an executor, closed after the test."""
    made = []

    def executor(**more):
        made.append(tiny.executor(kind, model, **more))
        return made[-1]

    yield executor
    for ex in made:
        ex.close()


def prompt(seed, count=70):
    return np.random.default_rng(seed).integers(0, 480, count)


def alone(ex, ids, slot=0):
    """Logits of every column, the prompt fed at once."""
    return tiny.run(ex, (slot, 0, ids, 1))["logits"]


def test_a_prompt_in_pieces_gives_the_same_logits_as_at_once(kind, opened):
    ids = prompt(1)
    whole = alone(opened(pass_width=96), ids)
    for cuts in ([0, 64, 70], [0, 1, 2, 33, 70], [0, 17, 34, 51, 68, 70]):
        ex = opened(pass_width=96)
        pieces = [tiny.run(ex, (0, a, ids[a:b], 1))["logits"] for a, b in itertools.pairwise(cuts)]
        same(kind, np.concatenate(pieces), whole)


def test_the_pass_width_an_executor_is_made_for_changes_nothing(kind, opened):
    ids = prompt(2, 60)
    same(kind, alone(opened(pass_width=64), ids), alone(opened(pass_width=200), ids))


def test_conversations_in_one_pass_get_what_they_get_alone(kind, opened):
    """Two prompts and a draw share a pass; each gives the bits it gives by itself."""
    a, b, c = prompt(3, 20), prompt(4, 30), prompt(5, 25)
    ex = opened(slots=3)
    tiny.run(ex, (2, 0, a[:-1], 1))
    together = tiny.run(ex, (2, 19, a[-1:], 0), (0, 0, b, 1), (1, 0, c, 1))["logits"]
    by_itself = opened()
    tiny.run(by_itself, (0, 0, a[:-1], 1))
    drawn = tiny.run(by_itself, (0, 19, a[-1:], 0))["logits"]
    same(kind, together[:1], drawn)
    same(kind, together[1:31], alone(opened(), b))
    same(kind, together[31:], alone(opened(), c))


def test_several_conversations_draw_together_as_each_alone(kind, opened):
    prompts = [prompt(10 + s, 9 + s) for s in range(4)]
    ex = opened(slots=4)
    for slot, ids in enumerate(prompts):
        tiny.run(ex, (slot, 0, ids[:-1], 1))
    parts = [(s, len(ids) - 1, ids[-1:], 0) for s, ids in enumerate(prompts)]
    together = tiny.run(ex, *parts)["logits"]
    for slot, ids in enumerate(prompts):
        one = opened()
        tiny.run(one, (0, 0, ids[:-1], 1))
        drawn = tiny.run(one, (0, len(ids) - 1, ids[-1:], 0))["logits"]
        same(kind, together[slot : slot + 1], drawn)


def test_a_run_at_index_0_starts_its_slot_from_empty(kind, opened):
    ids = prompt(6, 40)
    ex = opened()
    alone(ex, prompt(7, 60))
    same(kind, alone(ex, ids), alone(opened(), ids))


def test_a_prompt_and_draws_differ_from_the_whole_at_once_by_how_their_roles_round(
    opened, kind, model
):
    def parts(ex):
        made = [tiny.run(ex, (0, 0, ids[:20], 1))["logits"]]
        made += [tiny.run(ex, (0, i, ids[i : i + 1], 0))["logits"] for i in range(20, 50)]
        return np.concatenate(made)

    ids = prompt(8, 50)
    whole, cut = alone(opened(), ids), parts(opened())
    if kind == "reference":
        same(kind, cut, whole)
        return
    with columns_rounded(prompt_rule(features()["set"])):
        once, pieces = (tiny.executor("reference", model) for _ in range(2))
        expected = median_distance(parts(pieces), alone(once, ids))
    # F32: nothing is rounded but a prompt's attention is summed in another order, of f16 rings.
    assert median_distance(cut, whole) < max(ROOM * expected, 1e-3)


@pytest.mark.parametrize("kind", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["gemma3", "gemma4-e2b", "gemma4-dense"])
def test_a_conversation_longer_than_the_sliding_ring_forgets_only_what_its_window_may(
    name, kind, tiny_model
):
    """Far past the ring's capacity a column sees its window, as in a ring that never wraps."""
    model = tiny.decoder(tiny_model(name))
    ids = prompt(9, 200)
    small = tiny.executor(kind, model, context=256, pass_width=32)  # a ring of 64
    large = tiny.executor(kind, model, context=256, pass_width=240)
    pieces = [tiny.run(small, (0, a, ids[a : a + 32], 1))["logits"] for a in range(0, 200, 32)]
    same(kind, np.concatenate(pieces), tiny.run(large, (0, 0, ids, 1))["logits"])
    small.close()
    large.close()
