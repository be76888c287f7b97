"""Answers held to a schema, a grammar or a call, whatever the model would rather say.

The fake model wants to say its script; where the grammar does not let it, every other token is as
good as any, so the lowest one that may follow is drawn.
"""

import itertools
import json
import re
from typing import Literal

import openai
import pytest
from jsonschema import validate
from pydantic import BaseModel

from tests.server.conftest import PATIENCE, chat_body
from tests.server.test_chat import CHAT
from tests.server.test_tools import NOW, TOOLS, WEATHER, put_together, says, streamed, whole

COMPLETIONS = "/v1/completions"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["Ada", "Bo"]}, "age": {"type": "integer", "minimum": 18}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
WISH = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
GOOD = '{"name": "Bo", "age": 42}'
SHORT = {"temperature": 0, "max_tokens": 300}


def held(text, **fields):
    return says(text, **{"tools": None, **SHORT, **fields})


def test_metrics_count_the_vocabularies_that_were_read(roomy):
    whole(roomy, held(GOOD, json_schema=SCHEMA))
    read = roomy.state["stats"]["vocabularies"]
    metrics = roomy.request("GET", "/metrics")[2].decode()
    assert read == 1 and f"golem_grammar_vocabularies_total {read:.1f}" in metrics


@pytest.mark.parametrize(
    "fields",
    [{"response_format": WISH}, {"json_schema": SCHEMA}],
    ids=["response_format", "json_schema"],
)
@pytest.mark.parametrize("text", [GOOD, "I would rather talk.", '{"name": "Eve", "age": 3}', "{}"])
def test_the_content_is_valid_whatever_the_model_wants(roomy, fields, text):
    choice = whole(roomy, held(text, **fields))
    assert choice["finish_reason"] == "stop"
    validate(json.loads(choice["message"]["content"]), SCHEMA)
    if text == GOOD:
        assert choice["message"]["content"] == GOOD
    assert put_together(streamed(roomy, held(text, **fields))[0]) == choice["message"]


def test_json_object_means_an_object(roomy):
    fields = {"response_format": {"type": "json_object"}}
    assert whole(roomy, held(GOOD, **fields))["message"]["content"] == GOOD
    found = json.loads(whole(roomy, held("[1]", **fields))["message"]["content"])
    assert isinstance(found, dict)
    found = json.loads(whole(roomy, held("[1]", json_schema={}))["message"]["content"])
    assert isinstance(found, dict)
    with_schema = {"response_format": {"type": "json_object", "schema": SCHEMA}}
    validate(json.loads(whole(roomy, held("x", **with_schema))["message"]["content"]), SCHEMA)


def test_a_grammar(roomy):
    fields = {"grammar": 'root ::= "yes" | "no" [.!]'}
    assert whole(roomy, held("no!", **fields))["message"]["content"] == "no!"
    assert whole(roomy, held("perhaps", **fields))["message"]["content"] in ("yes", "no.", "no!")


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [({"grammar": 'root ::= "a" "b"+'}, "ab+"), ({"json_schema": {"const": "x"}}, '"x"')],
)
def test_completions_are_held_too(roomy, fields, pattern):
    body = {"prompt": "<user>say zzz\n<assistant>", "max_tokens": 9, "temperature": 0} | fields
    status, answer = roomy.post(COMPLETIONS, body)
    assert status == 200, answer
    assert re.fullmatch(pattern, answer["choices"][0]["text"])


@pytest.mark.parametrize(("thinks", "inside"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("text", [GOOD, "talk"])
def test_a_thought_is_free_and_the_answer_after_it_is_held(roomy, thinks, inside, text):
    script = ("" if inside else "<think>\n") + f"hm {{]\n</think>\n\n{text}"
    kwargs = {"enable_thinking": thinks, "inside": inside}
    body = held(script if thinks else text, response_format=WISH, chat_template_kwargs=kwargs)
    message = whole(roomy, body)["message"]
    assert message.get("reasoning_content") == ("hm {]" if thinks else None)
    validate(json.loads(message["content"]), SCHEMA)
    assert put_together(streamed(roomy, body)[0]) == message


def test_a_budget_ends_the_thought_of_an_answer_that_is_held(roomy):
    script = "<think>abcd</think>" + GOOD  # what follows the thought that is cut
    body = held(
        script.replace("</think>", "efghijkl"),
        response_format=WISH,
        chat_template_kwargs={"enable_thinking": True},
        thinking_budget_tokens=4,
    )
    message = whole(roomy, body)["message"]
    assert message["reasoning_content"] == "abcd"
    assert message["content"] == GOOD


def test_a_model_that_may_think_need_not(roomy):
    kwargs = {"enable_thinking": True}
    message = whole(roomy, held(GOOD, response_format=WISH, chat_template_kwargs=kwargs))["message"]
    assert message == {"role": "assistant", "content": GOOD}


def test_without_thinking_there_is_no_thought(roomy):
    message = whole(roomy, held("<think>\nhm\n</think>\n\n" + GOOD, response_format=WISH))[
        "message"
    ]
    assert "reasoning_content" not in message
    validate(json.loads(message["content"]), SCHEMA)


# ---- calls ----

CITY = '<tool_call>\n{"name": "weather", "arguments": {"city": "Lyon"}}\n</tool_call>'
CLOCK = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def calls(roomy, text, **fields):
    choice = whole(roomy, says(text, **SHORT, **fields))
    assert choice["finish_reason"] == "tool_calls"
    assert not choice["message"]["content"]
    found = choice["message"]["tool_calls"]
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in found]


def test_a_call_is_forced(roomy):
    assert calls(roomy, CITY, tool_choice="required") == [("weather", {"city": "Lyon"})]
    both = calls(roomy, CITY + "\n" + CLOCK, tool_choice="required")
    assert both == [("weather", {"city": "Lyon"}), ("now", {})]
    one = calls(roomy, CITY + "\n" + CLOCK, tool_choice="required", parallel_tool_calls=False)
    assert one == both[:1]
    (talked,) = calls(roomy, "I would rather talk.", tool_choice="required", tools=[NOW])
    assert talked[0] == "now"


def test_a_named_function_is_forced(roomy):
    named = {"type": "function", "function": {"name": "now"}}
    assert [name for name, _ in calls(roomy, CITY, tool_choice=named)] == ["now"]
    assert calls(roomy, CLOCK + "\n" + CLOCK, tool_choice=named) == [("now", {})]


def test_forced_arguments_are_those_of_the_schema(roomy):
    strict = json.loads(json.dumps(WEATHER))
    strict["function"]["parameters"] = SCHEMA
    ((_, arguments),) = calls(roomy, CITY, tool_choice="required", tools=[strict])
    validate(arguments, SCHEMA)


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": ["null", "object"], "properties": {"city": {"type": "string"}}},
        {"anyOf": [{"type": "null"}, {"enum": [5, {"city": "Lyon"}]}]},
        {"$ref": "#/$defs/any", "$defs": {"any": {"type": ["integer", "object"]}}},
    ],
)
def test_forced_arguments_are_an_object_whatever_else_their_schema_lets_be(roomy, parameters):
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    for wanted in ("null", "5", '{"city": "Lyon"}'):
        text = f'<tool_call>\n{{"name": "weather", "arguments": {wanted}}}\n</tool_call>'
        one = {"tool_choice": "required", "parallel_tool_calls": False}
        ((name, arguments),) = calls(roomy, text, tools=[tool], **one)
        assert name == "weather" and isinstance(arguments, dict)
        validate(arguments, parameters)


@pytest.mark.parametrize("kind", ["string", "array", ["null", "integer"]])
def test_a_call_whose_arguments_cannot_be_an_object_is_not_forced(roomy, kind):
    tool = {"type": "function", "function": {"name": "say", "parameters": {"type": kind}}}
    body = says(CITY, tools=[tool], tool_choice="required", max_tokens=9)
    status, answer = roomy.post(CHAT, body)
    assert status == 400
    message = answer["error"]["message"]
    assert message.startswith(f'tool "say": its parameters are of the type {json.dumps(kind)}, and')


def test_a_thought_before_a_forced_call(roomy):
    choice = whole(
        roomy,
        says(
            "<think>\nhm\n</think>\n\n" + CLOCK,
            tool_choice="required",
            chat_template_kwargs={"enable_thinking": True},
            **SHORT,
        ),
    )
    assert choice["message"]["reasoning_content"] == "hm"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "now"


def test_tools_beside_a_schema_leave_the_choice_to_the_model(roomy):
    assert calls(roomy, CLOCK, response_format=WISH) == [("now", {})]
    choice = whole(roomy, says(GOOD, response_format=WISH, **SHORT))
    assert choice["message"]["content"] == GOOD
    assert choice["finish_reason"] == "stop"


# ---- refusals ----


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"response_format": {"type": "yaml"}},
            'response_format type must be one of "text" or "json_object", but got: yaml',
        ),
        (
            {"response_format": {"schema": {}}},
            'response_format type must be one of "text" or "json_object", but got: null',
        ),
        ({"response_format": "json"}, "Field 'response_format': type must be object"),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format is json_schema and names no schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format is json_schema and names no schema",
        ),
        ({"json_schema": {}, "grammar": "x"}, "Cannot use both json_schema and grammar"),
        ({"json_schema": SCHEMA, "grammar": "x"}, "Cannot use both json_schema and grammar"),
        (
            {"response_format": WISH, "grammar": 'root ::= "x"'},
            "a request carries either a grammar or a response_format, not both",
        ),
        (
            {"response_format": WISH, "json_schema": SCHEMA},
            "a request carries either a json_schema or a response_format, not both",
        ),
        (
            {"tools": TOOLS, "grammar": 'root ::= "x"'},
            "Cannot use custom grammar constraints with tools.",
        ),
        (
            {"grammar": "root ::= x"},
            "Failed to initialize samplers: failed to parse grammar: Undefined rule",
        ),
        ({"grammar": 5}, "Field 'grammar': type must be string, but is number"),
        (
            {"json_schema": {"type": "object", "properties": {"a": {"type": "zork"}}}},
            "JSON schema conversion failed:\nJSON schema error at #/properties/a",
        ),
        (
            {"json_schema": {"type": "integer", "minimum": 2, "maximum": 1}},
            "JSON schema conversion failed:\nJSON schema error at #: no value satisfies the "
            "schema: minimum leaves none",
        ),
        (
            {
                "json_schema": {
                    "type": "array",
                    "prefixItems": [
                        {"type": "string", "minLength": 500 + i, "maxLength": 1000}
                        for i in range(40)
                    ],
                }
            },
            "JSON schema conversion failed:\nJSON schema error at #: the schema is too large",
        ),
        (
            {
                "tool_choice": "required",
                "tools": [
                    {
                        "type": "function",
                        "function": {
                            "name": "f",
                            "parameters": {
                                "type": "object",
                                "properties": {"a": {"enum": [2], "maximum": 1}},
                                "required": ["a"],
                            },
                        },
                    }
                ],
            },
            'tool "f": JSON schema conversion failed:\n'
            "JSON schema error at #/properties/a: no value",
        ),
        (
            {
                "tool_choice": "required",
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "f", "parameters": {"type": "zork"}},
                    }
                ],
            },
            'tool "f": JSON schema conversion failed:\nJSON schema error at #',
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": "a"},
                    {"role": "assistant", "content": "b"},
                ],
                "response_format": WISH,
            },
            "an answer that is held to a grammar, a schema or a call cannot go on from",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_kept_is_refused_before_anything_is_queued(roomy, fields, message, stream):
    before = roomy.state["stats"]["submitted"]
    status, answer = roomy.post(CHAT, chat_body("hello", stream=stream) | fields)
    assert status == 400
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["message"].startswith(message)
    assert roomy.state["stats"]["submitted"] == before


def test_the_vocabulary_is_read_for_the_first_constraint_and_once(start):
    server = start(GOLEM_CONTEXT="4096").ready()
    server.chat("hello", tools=TOOLS)
    assert server.state["stats"]["vocabularies"] == 0
    for _ in range(2):
        whole(server, held(GOOD, response_format=WISH))
        assert server.state["stats"]["vocabularies"] == 1


# ---- the openai package ----


class Person(BaseModel):
    name: Literal["Ada", "Bo"]
    age: int
    friends: list[Literal["Ada", "Bo"]]


@pytest.mark.parametrize("text", ["talk", '{"name": "Bo", "age": 42, "friends": ["Ada"]}'])
def test_parse_gives_a_pydantic_model(roomy, text):
    with openai.OpenAI(base_url=roomy.url + "/v1", api_key="none", timeout=PATIENCE) as client:
        answer = client.chat.completions.parse(
            model="any",
            messages=held(text)["messages"],
            response_format=Person,
            temperature=0,
            max_tokens=300,
        )
    person = answer.choices[0].message.parsed
    assert isinstance(person, Person)
    if text != "talk":
        assert person == Person(name="Bo", age=42, friends=["Ada"])


def test_thinking_and_format_in_every_combination(roomy):
    """Neither is lost for the other, and the content is never in the thought."""
    for thinks, formatted in itertools.product((False, True), repeat=2):
        script = ("<think>\nhm\n</think>\n\n" if thinks else "") + GOOD
        fields = {"response_format": WISH} if formatted else {}
        kwargs = {"enable_thinking": thinks}
        message = whole(roomy, held(script, chat_template_kwargs=kwargs, **fields))["message"]
        assert message["content"] == GOOD
        assert message.get("reasoning_content") == ("hm" if thinks else None)
