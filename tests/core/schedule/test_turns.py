"""Conversations that take turns in fewer slots than there are of them."""

import json

import pytest

from golem_core.formats.gguf import GGUF
from golem_core.schedule import Engine, Request
from golem_core.text.rendered import encode_rendered
from golem_core.text.template import ChatTemplate
from golem_core.text.tokenizer import load_tokenizer
from tests.core.schedule.fakes import GREEDY, WAIT, FakeClock, FakeModel, ask
from tests.paths import data, smollm2

PLENTY = 1 << 20  # bytes
KINDS = [{}, {"window": 16}, {"recurrent": True}]


def answer(engine, text, **fields):
    return engine.submit(ask(text, max_tokens=4, **fields)).wait(WAIT)


@pytest.mark.parametrize("options", KINDS)
def test_a_conversation_that_left_its_slot_goes_on_where_it_was(options):
    """The answers are a hash of all that the cache holds: a wrong memory draws another text."""
    with Engine(FakeModel(context=512, **options)) as alone:
        first = answer(alone, "alice asks the first thing")
        second = answer(alone, "alice asks the first thing" + first.text + " and more")
    with Engine(FakeModel(context=512, **options), cache_ram=PLENTY) as engine:
        assert answer(engine, "alice asks the first thing").text == first.text
        answer(engine, "bob wants to know something else, and says it at length")
        again = answer(engine, "alice asks the first thing" + first.text + " and more")
        stats = engine.stats
    assert again.text == second.text
    assert again.cached_tokens == second.cached_tokens > 20
    assert (stats.brought, stats.stored_bytes > 0) == (1, True)


def test_without_memory_for_it_a_conversation_is_read_again():
    with Engine(FakeModel(), cache_ram=0) as engine:
        text = "alice asks" + answer(engine, "alice asks").text
        answer(engine, "bob says something")
        assert answer(engine, text + "!").cached_tokens == 0


def test_a_request_that_wants_no_cache_leaves_the_other_conversation_its_memory():
    with Engine(FakeModel(), cache_ram=PLENTY) as engine:
        text = "alice asks" + answer(engine, "alice asks").text
        assert answer(engine, text, cache_prompt=False).cached_tokens == 0
        answer(engine, "bob says something")
        assert answer(engine, text + "!").cached_tokens > 10


def test_what_waits_outside_a_slot_is_forgotten_by_age_too():
    clock = FakeClock()
    with Engine(FakeModel(), cache_ram=PLENTY, cache_ttl=60.0, clock=clock) as engine:
        text = "alice asks" + answer(engine, "alice asks").text
        answer(engine, "bob says something")
        clock.now += 61
        assert answer(engine, text + "!").cached_tokens == 0


@pytest.mark.parametrize("options", KINDS)
def test_more_turns_than_slots_draw_what_they_draw_alone(options):
    names = ["alice", "bob", "carol", "dave", "erin"]

    def talk(engine, turns):
        texts = {name: f"{name} begins a conversation of her own:" for name in names}
        for turn in range(turns):
            for name in names:
                texts[name] += answer(engine, texts[name]).text + f"|turn {turn} of {name}|"
        return texts

    with Engine(FakeModel(slots=5, context=512, **options)) as engine:
        alone = talk(engine, 4)
    with Engine(FakeModel(slots=2, context=512, **options), cache_ram=PLENTY) as engine:
        assert talk(engine, 4) == alone
        assert engine.stats.brought >= 12


@pytest.mark.parametrize(
    ("run", "slots", "ram"),
    [("np1", 1, PLENTY), ("np2", 2, PLENTY), ("np1-no-host-cache", 1, 0)],
)
def test_recorded_conversations_find_as_much_cached_as_llama_server_did(run, slots, ram):
    """Its answers are given word for word, so that the slots hold what its slots held."""
    turns = json.loads(data("sessions.json").read_text())["runs"][run]
    with GGUF.open(smollm2()) as file:
        tokenizer = load_tokenizer(file.metadata)
        template = ChatTemplate(file.metadata["tokenizer.chat_template"])
    eos = tokenizer.eos
    model = FakeModel(slots=slots, context=4096, n_vocab=tokenizer.n_vocab, eog=tokenizer.eog)
    model.tokenizer = tokenizer
    model.executor.vocabulary = tokenizer.n_vocab
    script = {}
    model.executor.script = lambda history: script[len(history)]
    found = []
    with Engine(model, cache_ram=ram) as engine:
        for turn in turns:
            tokens = encode_rendered(tokenizer, template.render(turn["messages"]))
            assert len(tokens) == turn["usage"]["prompt_tokens"]
            drawn = [*tokenizer.encode(turn["content"]), eos]
            script.clear()
            script.update({len(tokens) + i: token for i, token in enumerate(drawn)})
            count = turn["predicted_n"]
            result = engine.submit(Request(tokens, max_tokens=count, params=GREEDY)).wait(WAIT)
            assert result.drawn_tokens == count
            found.append(result.cached_tokens)
    assert found == [turn["cache_n"] for turn in turns]
