"""Tools on Llama: shown by the file's template, called as that teaches, or refused by name."""

import json

import jsonschema
import msgspec
import pytest

from golem_core.model import open_decoder
from golem_core.sample import SamplerParams
from golem_core.schedule import Engine, Request
from golem_server.chat import prepare
from golem_server.errors import Refusal
from golem_server.schema import ChatRequest
from tests.plugins import tiny

# Of the shape of Llama 3.2's: tools in the first message of the user, one call a message.
TEACHES = """\
{%- for m in messages -%}
<{{ m.role }}>
{%- if m.tool_calls -%}
{%- set f = m.tool_calls[0].function -%}
{{ '{"name": "' ~ f.name ~ '", "parameters": ' ~ f.arguments | tojson ~ '}' }}
{%- else -%}
{%- if loop.first and tools -%}
Answer {"name": function, "parameters": {its arguments}}.
{% for t in tools %} {{ t | tojson }}{% endfor %}
{%- endif -%}
{{ m.content }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<assistant>{%- endif -%}
"""
TAGS = "{{ messages[0].content }}{% if tools %}<tool_call>{{ tools | tojson }}{% endif %}"
OTHER = "{{ messages[0].content }}{% if tools %}[CALLS]{{ tools | tojson }}{% endif %}"
SILENT = "{{ messages[0].content }}"
SCHEMA = {
    "type": "object",
    "properties": {"unit": {"enum": ["c", "f"]}, "days": {"type": "integer", "maximum": 9}},
    "required": ["unit"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now", "parameters": {"const": {}}}},
]


@pytest.fixture
def opened(tmp_path):
    """A function that opens the tiny model with a template."""
    models = []

    def open_with(template):
        keys = {"tokenizer.chat_template": template}
        path = tiny.write(tmp_path / f"{len(models)}.gguf", "llama", keys=keys)
        models.append(open_decoder(path, executor="cpu", context=1024, threads=2))
        return models[-1]

    yield open_with
    for model in models:
        model.close()


def request(**fields):
    messages = [{"role": "user", "content": "Lyon?"}]
    return msgspec.convert({"messages": messages, "tools": TOOLS, **fields}, ChatRequest)


def test_tools_and_past_calls_are_shown_as_the_template_has_them(opened):
    call = {"id": "c1", "type": "function"}
    call["function"] = {"name": "weather", "arguments": '{"unit": "c"}'}
    messages = [
        {"role": "user", "content": "Lyon?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ]
    text = prepare(opened(TEACHES), request(messages=messages)).text
    assert json.dumps(TOOLS[0]) in text
    called = '<assistant>{"name": "weather", "parameters": {"unit": "c"}}'
    assert text.endswith(called + "<tool>rain<assistant>")


@pytest.mark.parametrize("choice", ["required", {"function": {"name": "weather"}}])
def test_a_forced_call_is_one_that_the_tool_takes(opened, choice):
    """A random model, held to the grammar: whatever it draws is a call with valid arguments."""
    model = opened(TEACHES)
    names = set()
    with Engine(model) as engine:
        for seed in range(6):
            turn = prepare(model, request(tool_choice=choice))
            params = SamplerParams(seed=seed, temperature=1.5)
            job = engine.submit(Request(turn.tokens, 300, params=params, **turn.options))
            result = job.wait(60)
            reply = turn.reply()
            reply.whole(result.text)
            reply.end(result)
            assert (reply.content or "") == ""
            (call,) = reply.calls
            names.add(call.name)
            if call.name == "weather":
                jsonschema.validate(json.loads(call.arguments), SCHEMA)
            assert isinstance(json.loads(call.arguments), dict)
    assert names <= {"weather", "now"} if choice == "required" else names == {"weather"}


@pytest.mark.parametrize("template", [OTHER, SILENT])
def test_a_template_that_teaches_no_calls_has_tools_refused_by_name(opened, template):
    model = opened(template)
    with pytest.raises(Refusal, match='"tools" cannot be served with this model'):
        prepare(model, request())
    assert prepare(model, request(tool_choice="none")).tokens


def test_a_template_with_tags_has_calls_between_tags(opened):
    assert opened(TAGS).call.open == "<tool_call>"
