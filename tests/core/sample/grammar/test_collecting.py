"""A grammar that is put together stops nobody else for a search for garbage."""

import gc

import pytest

from golem_core.sample.grammar import Grammar, SchemaError
from golem_core.sample.grammar.collecting import paused


@pytest.fixture
def collections():
    """The generations that were collected."""
    found = []

    def note(phase, info):
        if phase == "start":
            found.append(info["generation"])

    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


def test_nothing_is_collected_while_a_schema_is_compiled(collections):
    schema = {"enum": [f"{i:x}-{i * i}" for i in range(500)]}
    inside = []
    with paused():  # as a server does, around several steps
        Grammar.of_schema(schema)
        inside += collections
    assert not inside
    Grammar.of_schema(schema)
    assert len(collections) <= 2  # of what is new, when all is done
    assert gc.isenabled()


def test_the_collector_goes_on_after_an_error_and_as_it_was():
    with pytest.raises(SchemaError):
        Grammar.of_schema({"type": "nothing"})
    assert gc.isenabled()
    with paused():
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
