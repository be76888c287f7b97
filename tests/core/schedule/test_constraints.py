"""Answers of the engine that a grammar or a schema holds."""

import json

import jsonschema
import numpy as np
import pytest

from golem_core.sample import ParamError, SamplerParams
from golem_core.sample.grammar import Grammar
from golem_core.schedule import DeadEnd, Engine
from golem_core.schedule.thought import Thinking
from tests.core.schedule.fakes import EOG, WAIT, FakeModel, Gate, V, ask, together

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["a", "bc"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}


def held(seed=0, **fields):
    return SamplerParams(seed=seed, temperature=1.5, top_k=0, min_p=0, **fields)


def answer(engine, text="x", **fields):
    return engine.submit(ask(text, **{"max_tokens": 200, **fields})).wait(WAIT)


@pytest.fixture
def engine():
    with Engine(FakeModel(slots=4, context=512)) as engine:
        yield engine


def test_answers_always_parse(engine):
    """A model that scores by a hash draws valid documents, and ends them itself."""
    validator = jsonschema.Draft202012Validator(SCHEMA)
    jobs = [
        engine.submit(ask(f"p{i}", max_tokens=300, params=held(i, json_schema=SCHEMA)))
        for i in range(12)
    ]
    for job in jobs:
        result = job.wait(WAIT)
        assert result.stop_type == "eos", result
        assert validator.is_valid(json.loads(result.text)), result.text


def test_grammars_of_others_change_nothing(engine):
    """Answers in one pass, some held and some free, are what each is alone."""
    requests = [
        ask("one", max_tokens=60, params=held(1, json_schema=SCHEMA)),
        ask("two", max_tokens=60, params=held(2)),
        ask("three", max_tokens=60, params=held(3, grammar='root ::= ([a-c]{2} " ")+')),
    ]
    alone = [engine.submit(request).wait(WAIT).tokens for request in requests]
    gate = Gate(engine.model.executor)
    jobs = together(engine, gate, requests)
    gate.open()
    assert [job.wait(WAIT).tokens for job in jobs] == alone


def test_the_vocabulary_is_read_when_it_is_needed(engine):
    answer(engine)
    assert engine.stats.vocabularies == 0
    for _ in range(3):
        answer(engine, params=held(grammar='root ::= "yes" | "no"'))
    assert engine.stats.vocabularies == 1


@pytest.mark.parametrize(
    "fields, field, says",
    [
        ({"grammar": "root ::= ("}, "grammar", "failed to parse grammar: expecting ')'"),
        ({"grammar": "root ::= <|x|>"}, "grammar", "invalid token '<|x|>'"),
        ({"json_schema": {"type": "integer", "minimum": "x"}}, "json_schema", "minimum"),
        ({"json_schema": {"properties": {"a": {"uniqueItems": True}}}}, "json_schema", "#/prop"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_a_slot_is_taken(engine, fields, field, says):
    with pytest.raises(ParamError) as caught:
        answer(engine, params=held(**fields))
    assert caught.value.field == field and says in str(caught.value)
    assert engine.stats.submitted == 0


def test_a_dead_end_fails_alone(engine):
    """The request that cannot go on fails by name; the one beside it is answered."""
    gate = Gate(engine.model.executor)
    bias = tuple((i, -np.inf) for i in b"b")
    jobs = together(
        engine,
        gate,
        [
            ask("one", params=held(grammar='root ::= "a" "b"', logit_bias=bias)),
            ask("two", max_tokens=20),
        ],
    )
    gate.open()
    with pytest.raises(DeadEnd, match="allows nothing here that can be drawn"):
        jobs[0].wait(WAIT)
    assert jobs[0].result.text == "a" and jobs[0].result.finish_reason == "error"
    assert len(jobs[1].wait(WAIT).tokens) > 1


def test_a_grammar_past_its_limit_fails_alone(engine):
    """The slot of the answer is free again; the one beside it goes on to its end."""
    gate = Gate(engine.model.executor)
    grammar = 'root ::= "a" ' + "x " * 2000 + '\nx ::= "b"? "c"? "d"?'
    other = ask("two", max_tokens=20, params=held(2, grammar="root ::= [a-z]{20}"))
    jobs = together(engine, gate, [ask("one", params=held(grammar=grammar)), other])
    gate.open()
    with pytest.raises(DeadEnd, match="more than 10000 steps"):
        jobs[0].wait(WAIT)
    assert len(jobs[1].wait(WAIT).text) == 20
    assert engine.busy == 0 and not any(slot.is_processing for slot in engine.slots)
    assert len(answer(engine, params=held(3, grammar="root ::= [a-z]{9}")).text) == 9


@pytest.mark.parametrize("mark", [b"</t>", ord(">")])
def test_a_grammar_may_begin_after_a_mark(mark):
    """Before it everything may be said but an end."""
    model = FakeModel(context=512)
    thought = list(b"hm <t> a</t")

    def script(history):
        said = len(history) - 1
        return thought[said] if said < len(thought) else None

    def after(seen, logits):
        logits[:, EOG] += 4 * (logits.max() - logits.min())  # it would rather end at once
        return logits

    model.executor.script = script
    model.executor.after = after
    if mark == b"</t>":
        thought.append(ord(">"))
    else:
        del thought[5:]
        thought.append(ord(">"))
    with Engine(model) as engine:
        params = held(3, grammar='root ::= "{" [a-z]{3} "}"', grammar_after=mark)
        result = answer(engine, params=params)
    said = bytes(thought).decode()
    assert result.stop_type == "eos"
    assert result.text.startswith(said)
    rest = result.text[len(said) :]
    assert len(rest) == 5 and rest[0] == "{" and rest[1:4].isalpha() and rest[4] == "}"


def test_forced_tokens_are_followed(engine):
    """A thought closed by its budget is read by the grammar that waits for its end."""
    grammar = Grammar.compile('root ::= "yes" | "no"').after(b"]")
    thinking = Thinking(("[", "]"), inside=True, budget=4, closing=tuple(b"]"))
    result = answer(engine, params=held(1), grammar=grammar, thinking=thinking)
    _, _, said = result.text.partition("]")
    assert said in ("yes", "no")
    job = engine.submit(
        ask("x", grammar=Grammar.compile("root ::= [a-z]*"), thinking=thinking, params=held(1))
    )
    with pytest.raises(DeadEnd, match="may not follow"):
        job.wait(WAIT)


def test_vocabulary_of_the_fake_is_whole(engine):
    """Every byte can be drawn: the fake's answers are only as good as this."""
    result = answer(engine, params=held(1, grammar="root ::= [\\x01-\\U0010FFFF]{40}"))
    assert len(result.text) == 40 and V == 257
