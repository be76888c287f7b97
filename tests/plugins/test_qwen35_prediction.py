"""Prediction blocks: they guess what llama.cpp's guess, and no text changes because of them."""

import numpy as np
import pytest

from golem_core.formats.gguf import GGUF
from golem_core.model import open_decoder
from golem_core.model.media import Limits
from golem_core.model.prediction import OUTPUTS, open_prediction
from golem_core.sample import SamplerParams
from golem_core.schedule import Engine, Request
from golem_core.schedule.media import Span
from tests.core.schedule.fakes import WAIT, FakeClock
from tests.paths import data
from tests.plugins import tiny, tiny_next
from tests.plugins.projectors import picture, write_projector
from tests.plugins.tiny import relative_rms

PROMPT = np.random.default_rng(3).integers(0, 250, 70).tolist()
GREEDY = SamplerParams(temperature=0)
SEEDED = SamplerParams(seed=11, temperature=0.9)
LETTERS = SamplerParams(seed=11, temperature=1.2, grammar='root ::= ([a-e] | " and ")+')


@pytest.fixture(scope="module")
def recorded():
    return np.load(data("models/tiny_prediction.npz"))


@pytest.fixture(scope="module")
def paths(tiny_model, tmp_path_factory):
    """By name: tiny models that llama.cpp was asked about, and two whose guesses come true."""
    folder = tmp_path_factory.mktemp("prediction")
    made = {name: tiny_model(name) for name in ("qwen35-mtp", "qwen35moe-mtp")}
    dense = tiny_next.moe_named_dense(made["qwen35moe-mtp"], folder / "dense.gguf")
    made["qwen3next-mtp"] = tiny_next.packed_as_next(dense, folder / "next.gguf", False)
    for name, rest in (("right", 0.0), ("often", 0.1)):
        path = folder / f"{name}.gguf"
        made[name] = tiny_next.of_the_last_token(made["qwen35-mtp"], path, rest)
    return made


@pytest.fixture(scope="module")
def models(paths):
    """models(name) -> an open model of two slots."""
    made = {}

    def opened(name):
        if name not in made:
            options = {"context": 2400, "parallel": 2, "threads": 2, "pass_width": 128}
            made[name] = open_decoder(paths[name], draft="mtp", **options)
        return made[name]

    yield opened
    for model in made.values():
        model.close()


class Guesser:
    """A model's passes and its prediction block's, one conversation."""

    def __init__(self, kind, path, **more):
        model = tiny.decoder(path)
        model.predicting = True
        self.model = tiny.executor(kind, model, pass_width=96, **more)
        self.block = open_prediction(self.model, model.prediction_program(1))

    def read(self, ids, cuts=(), role=1):
        """What the head multiplied for the last of the ids."""
        for first, last in zip((0, *cuts), (*cuts, len(ids)), strict=True):
            made = tiny.run(self.model, (0, first, ids[first:last], role), wanted=("hidden",))
        return made["hidden"][-1]

    def guess(self, token, at, hidden):
        """Logits and what stands for the next token."""
        runs = np.array([[0, 0, 1, at, 0]], np.int32)
        inputs = {"runs": runs, "tokens": np.array([token], np.int32), "hidden": hidden[None]}
        made = self.block.run(inputs, OUTPUTS)
        return made["logits"][0].copy(), made["hidden"][0].copy()

    def close(self):
        self.block.close()
        self.model.close()


@pytest.mark.parametrize("kind", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["qwen35-mtp", "qwen35moe-mtp", "qwen3next-mtp"])
def test_guesses_are_llama_cpps_and_so_are_those_from_guesses(name, kind, paths, recorded):
    ids = recorded["tokens"]
    guesser = Guesser(kind, paths[name])
    hidden, token = guesser.read(ids[:-1]), ids[-1]
    for step, wanted in enumerate(recorded[name]):
        logits, hidden = guesser.guess(token, len(ids) - 1 + step, hidden)
        assert relative_rms(logits, wanted) < 2e-3, step
        token = int(wanted.argmax())
    guesser.close()


def test_where_passes_end_does_not_change_what_is_guessed(paths):
    """What a pass leaves for the next one to pair its first token with is a state."""
    found = []
    for cuts in ((), (1,), (17, 40, 41)):
        guesser = Guesser("cpu", paths["qwen35-mtp"])
        found.append(guesser.guess(PROMPT[-1], 69, guesser.read(PROMPT[:-1], cuts))[0])
        guesser.close()
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


@pytest.mark.parametrize("name", ["qwen35-mtp", "qwen35moe-mtp"])
def test_the_model_s_own_logits_are_the_same_bits_beside_a_prediction_block(name, paths):
    found = []
    for predicting in (False, True):
        model = tiny.decoder(paths[name])
        model.predicting = predicting
        executor = tiny.executor("cpu", model, pass_width=96)
        parts = [(0, 0, PROMPT, 1), (0, 70, PROMPT[:3], 0)]
        found.append([tiny.run(executor, part)["logits"] for part in parts])
        executor.close()
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(mine, theirs)


# ---- answers


def eager(model, draft="mtp", **options):
    """An engine to which passes seem to take no time, so that every guess is acted on."""
    return Engine(model, draft=draft, clock=FakeClock(), **options)


def ask(engine, tokens=PROMPT, params=GREEDY, most=48, **more):
    return engine.submit(Request(list(tokens), max_tokens=most, params=params, **more)).wait(WAIT)


@pytest.mark.parametrize("params", [GREEDY, SEEDED, LETTERS], ids=["greedy", "seeded", "grammar"])
@pytest.mark.parametrize("name", ["often", "qwen35-mtp", "qwen35moe-mtp"])
def test_an_answer_is_the_same_with_guesses_and_without(name, params, models):
    model = models(name)
    with eager(model, "off") as engine:
        wanted = ask(engine, params=params)
    for draft in ("mtp", "auto"):
        with eager(model, draft) as engine:
            found = ask(engine, params=params)
            assert found.tokens == wanted.tokens and found.text == wanted.text
            assert engine.stats.drafted
            if name == "often" and params is not LETTERS:
                assert 0 < engine.stats.accepted < engine.stats.drafted


def test_guesses_that_are_always_right_are_always_taken_and_passes_fall(models):
    with eager(models("right"), draft_n=3) as engine:
        found = ask(engine, most=49)
        assert found.drafted_tokens == found.accepted_tokens == 36
        assert engine.stats.passes == 1 + 48 // 4
    with eager(models("right"), "off") as engine:
        assert ask(engine, most=49).tokens == found.tokens
        assert engine.stats.passes == 49


def test_several_conversations_are_guessed_for_in_one_pass(models):
    model = models("often")
    asked = [Request(PROMPT, max_tokens=40, params=p) for p in (GREEDY, SEEDED)]
    asked[1].tokens[3] = 17
    with eager(model, "off") as engine:
        alone = [engine.submit(request).wait(WAIT).tokens for request in asked]
    with eager(model) as engine:
        jobs = engine.submit_all(asked)
        assert [job.wait(WAIT).tokens for job in jobs] == alone
        assert engine.stats.accepted


def test_siblings_of_one_prompt_guess_from_its_last_token(models):
    model = models("often")
    asked = [
        Request(PROMPT, max_tokens=30, params=SamplerParams(seed=s, temperature=0.9))
        for s in (1, 2)
    ]
    told = []
    for draft in ("off", "mtp"):
        with eager(model, draft) as engine:
            jobs = engine.submit_all(asked)
            told.append([job.wait(WAIT).tokens for job in jobs])
            accepted = engine.stats.accepted
    assert told[0] == told[1] and accepted


def test_guesses_after_a_picture_stand_at_the_positions_behind_it(paths, tmp_path):
    """The answer is the same, and so is how guesses go when it is read again in other passes."""
    mmproj = write_projector(tmp_path / "mmproj.gguf", 256, "qwen35")
    options = {"context": 512, "threads": 2, "mmproj": mmproj, "media": Limits(tokens=(2, 40))}
    found = []
    for draft, width in (("off", 256), ("mtp", 256), ("mtp", 16)):
        model = open_decoder(paths["often"], draft=draft, pass_width=width, **options)
        rows = model.projector.rows("image", picture(1, width=90, height=30))
        tokens = [*PROMPT[:7], *[0] * len(rows), *PROMPT[7:20]]
        with eager(model, draft, draft_n=0 if draft == "off" else 2) as engine:
            found.append(ask(engine, tokens, media=[Span(7, rows)]))
        model.close()
    assert [result.tokens for result in found] == [found[0].tokens] * 3
    assert found[1].accepted_tokens and counts(found[1]) == counts(found[2])


# ---- what is kept between turns


def counts(result):
    """The text, and how its guesses went: the latter tells what the block attended to."""
    return result.tokens, result.drafted_tokens, result.accepted_tokens


def turns(engine):
    """A turn, and one that goes on from its answer."""
    first = ask(engine)
    return [*PROMPT, *first.tokens, *PROMPT[:9]]


def cold(model, tokens, **options):
    with eager(model, **options) as engine:
        return counts(ask(engine, tokens, cache_prompt=False))


def test_a_turn_that_goes_on_guesses_as_one_read_anew(models):
    model = models("often")
    with eager(model, draft_n=2) as engine:
        tokens = turns(engine)
        warm = ask(engine, tokens)
    assert warm.cached_tokens > 70
    wanted = cold(model, tokens, draft_n=2)
    assert warm.tokens == wanted[0] and warm.accepted_tokens > 5
    assert (
        abs(warm.accepted_tokens - wanted[2]) <= 2
    )  # drawn columns round otherwise than read ones


def test_a_saved_slot_brings_back_what_the_block_attends_to(models, tmp_path):
    model = models("often")
    with eager(model, draft_n=2) as engine:
        tokens = turns(engine)
        engine.save(0, tmp_path / "slot")
        wanted = counts(ask(engine, tokens, id_slot=0))
        engine.erase(0)
        engine.restore(0, tmp_path / "slot")
        found = ask(engine, tokens, id_slot=0)
    assert found.cached_tokens > 70 and counts(found) == wanted


def test_so_does_the_host_s_cache_of_prompts(models):
    model = models("often")
    with eager(model, draft_n=2, slots=1) as engine:
        tokens = turns(engine)
        wanted = counts(ask(engine, tokens))
    with eager(model, draft_n=2, slots=1, cache_ram=1 << 28) as engine:
        assert turns(engine) == tokens
        ask(engine, PROMPT[::-1])
        found = ask(engine, tokens)
        assert engine.stats.brought == 1
    assert found.cached_tokens > 70 and counts(found) == wanted


def test_so_does_a_checkpoint(models):
    """Two prompts part after 600 tokens: the second goes on from a copy kept there."""
    model = models("often")
    sheet = np.random.default_rng(8).integers(0, 250, 600).tolist()
    with eager(model, draft_n=2, slots=1) as engine:
        for ending in (PROMPT[:20], PROMPT[20:40]):
            ask(engine, sheet + ending, most=20)
        found = ask(engine, sheet + PROMPT[40:60])
        assert found.cached_tokens == 600
    assert counts(found) == cold(model, sheet + PROMPT[40:60], draft_n=2)


def test_a_copy_of_another_slot_s_beginning_serves_the_block_too(models):
    model = models("often")
    sheet = np.random.default_rng(8).integers(0, 250, 600).tolist()
    with eager(model, draft_n=2) as engine:
        for ending in (PROMPT[:20], PROMPT[20:40]):
            ask(engine, sheet + ending, most=4, id_slot=0)
        found = ask(engine, sheet + PROMPT[40:60], id_slot=1)
        assert found.slot == 1 and found.cached_tokens == 600
    assert counts(found) == cold(model, sheet + PROMPT[40:60], draft_n=2)


# ---- opening


def test_a_file_without_a_prediction_block_is_refused_by_name(tiny_model):
    path = tiny_model("qwen35")
    with pytest.raises(ValueError, match=r"-draft mtp needs a prediction block.*nextn_predict_la"):
        open_decoder(path, draft="mtp")
    model = open_decoder(path, draft="auto", context=256, threads=1)
    assert model.prediction is None
    model.close()
    with pytest.raises(ValueError, match="draft 'fast': it is one of auto, ngram, mtp, off"):
        open_decoder(path, draft="fast")


def test_so_is_one_whose_header_promises_what_its_tensors_lack(paths, tmp_path):
    lacking = tiny.rewrite(
        paths["qwen35-mtp"], tmp_path / "x.gguf", drop=["blk.8.nextn.eh_proj.weight"]
    )
    with pytest.raises(ValueError, match=r"blk\.8\.nextn\.eh_proj\.weight"):
        open_decoder(lacking, draft="mtp")
    halved = tiny.rewrite(paths["qwen35-mtp"], tmp_path / "y.gguf", drop=["blk.8.attn_k.weight"])
    for draft in ("mtp", "auto"):
        with pytest.raises(ValueError, match=r"y\.gguf: .*blk\.8\.attn_k\.weight.*-draft ngram"):
            open_decoder(halved, draft=draft)
    lacking = tiny.rewrite(paths["qwen35-mtp"], tmp_path / "z.gguf", drop=["blk.8.ffn_up.weight"])
    with pytest.raises(ValueError, match=r"z\.gguf: .*blk\.8\.ffn_up\.weight.*-draft ngram"):
        open_decoder(lacking, draft="mtp")
    open_decoder(halved, draft="ngram", context=256, threads=1).close()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"nextn_predict_layers": 0}, "is 0; at least 1, for block 8 has nextn"),
        ({"nextn_predict_layers": None}, "is missing; at least 1, for block 8 has nextn"),
        ({"nextn_predict_layers": 2}, "is 2; less, for block 7 has no nextn"),
        ({"block_count": 8}, "is 1; less, for block 7 has no nextn"),
        ({"block_count": 10}, "is 1; at least 2, for block 8 has nextn"),
    ],
)
def test_a_count_that_the_tensors_deny_is_refused(keys, said, paths, tmp_path):
    """A block of the model left out, or one that predicts run as its last, would go unnoticed."""
    changed = {f"qwen35.{key}": value for key, value in keys.items()}
    lying = tiny.rewrite(paths["qwen35-mtp"], tmp_path / "x.gguf", changed)
    with pytest.raises(ValueError, match=f"nextn_predict_layers {said}"):
        open_decoder(lying, draft="off")


def test_a_prediction_block_that_was_left_out_of_the_file_is_no_lie(paths, tmp_path):
    with GGUF.open(paths["qwen35-mtp"]) as file:
        drop = [name for name in file.tensors if name.startswith("blk.8.")]
    without = tiny.rewrite(paths["qwen35-mtp"], tmp_path / "x.gguf", drop=drop)
    model = open_decoder(without, draft="auto", context=256, threads=1)
    assert model.prediction is None
    model.close()


def test_an_engine_of_a_model_that_was_opened_without_says_so(tiny_model):
    model = open_decoder(tiny_model("qwen35"), context=256, threads=1)
    with pytest.raises(ValueError, match="this model has no prediction block open"):
        Engine(model, draft="mtp")
    model.close()


def test_the_block_counts_in_what_is_refused_for_memory(paths):
    plain = open_decoder(paths["qwen35-mtp"], context=512, threads=1)
    ahead = open_decoder(paths["qwen35-mtp"], context=512, threads=1, draft="mtp")
    more = ahead.estimate.weights - plain.estimate.weights
    of_block = sum(
        t.data.nbytes
        for n, t in ahead.file.tensors.items()
        if n.startswith("blk.8.") and len(t.shape) > 1
    )
    assert more == of_block
    assert ahead.estimate.per_position > plain.estimate.per_position
    plain.close()
    ahead.close()
