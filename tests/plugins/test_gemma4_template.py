"""Prompts of Gemma 4: the built-in template writes what the family's own templates write.

The vectors were rendered with Jinja2 from the checkpoints' templates of July 2026, in their two
flavours, and by llama-server b11434; random conversations and those of an older template besides.
"""

import gzip
import json

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from golem_core.formats.gguf import GGUF
from golem_core.text.template import ChatTemplate, TemplateError
from golem_plugins.gemma4.template import TEMPLATE, WITH_EMPTY_THOUGHT, Gemma4Template
from tests import paths
from tests.plugins import tiny

VECTORS = json.loads(gzip.decompress(paths.data("text/gemma4_chat.json.gz").read_bytes()))
SOURCES = {"gemma4_e2b": TEMPLATE, "gemma4_31b": WITH_EMPTY_THOUGHT}
CASES = [(flavour, case) for case in VECTORS["cases"] for flavour in SOURCES]
# Where golem's prompts are not llama-server's: it drops a schema of results, takes media only
# with a projector, and decodes arguments, which golem's server does before it renders.
NOT_LLAMA_SERVERS = {
    "tools_response_schema",
    "call_answered_mapping",
    "image_then_text",
    "text_image_audio",
    "args_string_error",
}


def render(case, source, template=ChatTemplate):
    return template(source, bos_token="<bos>").render(
        case["messages"],
        tools=case["tools"],
        add_generation_prompt=case["add_generation_prompt"],
        **case["kwargs"],
    )


def names(cases):
    return [f"{case['name']}-{flavour}" for flavour, case in cases]


@pytest.mark.parametrize(("flavour", "case"), CASES, ids=names(CASES))
def test_the_built_in_template_is_the_familys(flavour, case):
    wanted = case["rendered"][flavour]
    if isinstance(wanted, str):
        assert render(case, SOURCES[flavour]) == wanted
    else:
        with pytest.raises(TemplateError, match=r"content of a tool message|arguments of a call"):
            render(case, SOURCES[flavour])


@pytest.mark.parametrize("case", VECTORS["fuzz"], ids=lambda c: c["template"])
def test_random_conversations(case):
    assert render(case, SOURCES[case["template"]]) == case["rendered"]


@pytest.mark.parametrize(("flavour", "case"), CASES, ids=names(CASES))
def test_prompts_are_those_of_llama_server(flavour, case):
    if case["name"] in NOT_LLAMA_SERVERS:
        assert case["llama_server"][flavour] != case["rendered"][flavour]
        return
    found = render(case, SOURCES[flavour], Gemma4Template)
    assert found == case["llama_server"][flavour]


@pytest.mark.parametrize("name", ["gemma_chat", "gemma_chat12"])
def test_older_vectors_differ_where_an_answer_goes_on(name):
    """There every message of the assistant ended its turn; since July it is one turn."""
    source = TEMPLATE if name == "gemma_chat" else WITH_EMPTY_THOUGHT
    differing = []
    for case in VECTORS["older"][name]:
        more = {
            "add_generation_prompt": case["gen"],
            "kwargs": {"enable_thinking": case["thinking"]},
        }
        if render(case | more, source) != case["rendered"]:
            differing.append(case["name"])
    assert differing == ["assistant_continuation"]


CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
TALK = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "a", "content": "18"},
]


@pytest.fixture(scope="module")
def from_the_file():
    """The template of Google's file from before results had a role of their own."""
    with GGUF.open(paths.external("llamacpp/vocab/ggml-vocab-gemma-4.gguf")) as file:
        return file.metadata["tokenizer.chat_template"]


def test_results_reach_templates_that_take_them_as_a_field(from_the_file):
    """They would be a turn of their own otherwise, of a role the model has never seen."""
    assert "<|turn>tool\n" in ChatTemplate(from_the_file).render(TALK)
    text = Gemma4Template(from_the_file).render(TALK)
    assert "<|turn>tool" not in text
    called = "<|turn>model\n<|tool_call>call:f{x:1}<tool_call|>"
    assert called + '<|tool_response>response:f{value:<|"|>18<|"|>}<tool_response|>' in text
    assert render({"messages": TALK, "tools": None, "add_generation_prompt": True, "kwargs": {}},
                  TEMPLATE).count("response:f") == 1  # fmt: skip


def test_the_files_template_renders_as_jinja_renders_it(from_the_file):
    """In the sandbox with its limits, character for character."""
    plain = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    ).from_string(from_the_file)
    compared = 0
    for case in VECTORS["cases"]:
        try:
            wanted = plain.render(
                bos_token="<bos>",
                messages=case["messages"],
                tools=case["tools"],
                add_generation_prompt=case["add_generation_prompt"],
                **case["kwargs"],
            )
        except (jinja2.TemplateError, TypeError):
            continue
        assert render(case, from_the_file) == wanted, case["name"]
        compared += 1
    assert compared > 20


@pytest.mark.parametrize("name", ["gemma4-e2b", "gemma4-dense"])
def test_a_file_without_a_template_gets_that_of_its_size(name, tiny_model):
    """Sizes without block embeddings are trained to see that nothing was thought."""
    model = tiny.decoder(tiny_model(name))
    text = model.chat_template(model.fallback_template()).render([{"role": "user", "content": "q"}])
    assert text.endswith(
        "<|turn>model\n" + "<|channel>thought\n<channel|>" * (name != "gemma4-e2b")
    )
