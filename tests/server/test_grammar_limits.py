"""A grammar that asks too much while its answer is drawn: the request is at fault, not the server.

The grammar is sound until "hello" is said, so that streams are under way when it gives up.
"""

import json

import pytest

from golem_core.sample.grammar.gbnf import parse
from golem_server import constraint
from tests.server.recorded import HELLO

GRAMMAR = 'root ::= "hello" " " ' + "x " * 2000 + '\nx ::= "b"? "c"? "d"?'
SAYS = "more than 10000 steps into each other"
HELPS = "use repetitions"
SCHEMA = {"const": "of a grammar that is too deep"}
WISH = {"type": "json_schema", "schema": SCHEMA}
NAMED = {"type": "json_schema", "json_schema": {"name": "deep", "schema": SCHEMA}}
GRAMMARS = {
    "/v1/chat/completions": {"messages": HELLO, "grammar": GRAMMAR},
    "/v1/completions": {"prompt": "hello", "grammar": GRAMMAR},
    "/completion": {"prompt": "hello", "grammar": GRAMMAR},
}
SCHEMAS = {
    "/v1/chat/completions": {"messages": HELLO, "response_format": NAMED},
    "/v1/responses": {"input": "hello", "text": {"format": WISH | {"name": "deep"}}},
    "/v1/messages": {"messages": HELLO, "max_tokens": 50, "output_config": {"format": WISH}},
    "/api/chat": {"model": "tiny.gguf", "messages": HELLO, "format": SCHEMA},
    "/api/generate": {"model": "tiny.gguf", "prompt": "hello", "format": SCHEMA},
}
CASES = [*GRAMMARS.items(), *SCHEMAS.items()]
EACH = pytest.mark.parametrize(("path", "body"), CASES, ids=[path for path, _ in CASES])


@pytest.fixture
def server(tiny, monkeypatch):
    """No schema is known that comes to so deep a grammar: SCHEMA stands for one."""
    own = constraint.expression_of

    def expression_of(schema, *rest):
        return parse(GRAMMAR)["root"] if schema == SCHEMA else own(schema, *rest)

    monkeypatch.setattr(constraint, "expression_of", expression_of)
    return tiny


def frames(path, text):
    """The objects of a stream, in order."""
    lines = text.splitlines()
    if path.startswith("/api/"):
        return [json.loads(line) for line in lines]
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def said(data):
    """What an object of a stream says of the answer; dialects differ only in where it stands."""
    (choice,) = data.get("choices") or [{}]
    delta = choice.get("delta") or data.get("delta") or data.get("message") or {}
    if isinstance(delta, str):
        return delta
    told = (delta.get("content"), delta.get("text"), choice.get("text"))
    return next((part for part in (*told, data.get("content"), data.get("response")) if part), "")


def serves_others(server):
    """Every slot is free, and the next request is answered."""
    assert not any(slot["is_processing"] for slot in server.look("/slots"))
    asked = {"messages": HELLO, "max_tokens": 9, "grammar": 'root ::= "fine"'}
    answer = server.ask("/v1/chat/completions", asked)
    assert answer["choices"][0]["message"]["content"] == "fine"


@EACH
def test_an_answer_that_is_sent_whole_is_a_400_that_says_what_to_change(server, path, body):
    told = server.ask(path, body | {"stream": False}, 400)
    error = told["error"]
    message = error if path.startswith("/api/") else error["message"]
    assert SAYS in message and HELPS in message
    if not path.startswith("/api/"):
        assert error["type"] == "invalid_request_error"
    serves_others(server)


@EACH
def test_a_stream_ends_with_the_error_of_its_dialect(server, path, body):
    answer = server.simulate_post(path, json=body | {"stream": True})
    assert answer.status_code == 200, answer.text
    *before, last = frames(path, answer.text)
    assert "".join(text for data in before if isinstance(text := said(data), str)) == "hello"
    if path.startswith("/api/"):
        assert list(last) == ["error"] and SAYS in last["error"]
    elif path == "/v1/responses":
        assert last["type"] == "error" and SAYS in last["message"]
    else:
        assert last["error"]["type"] == "invalid_request_error" and SAYS in last["error"]["message"]
    assert path != "/v1/messages" or last["type"] == "error"
    serves_others(server)
