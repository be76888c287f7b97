"""The built-in Qwen3.5 and Qwen3.8 templates on conversations, as the real ones have them.

The vectors were rendered with transformers' environment from the templates that files of the two
carry; a third of them are random conversations, some of which the real templates refuse.
"""

import gzip
import json

import pytest

from golem_core.text.template import ChatTemplate, TemplateError
from golem_plugins.qwen35.template import QWEN35, QWEN38
from tests import paths
from tests.plugins import tiny

CASES = json.loads(gzip.decompress(paths.data("text/qwen35_conversations.json.gz").read_bytes()))
TEMPLATES = {"qwen35": ChatTemplate(QWEN35), "qwen38": ChatTemplate(QWEN38)}
ASKED = [{"role": "user", "content": "Hi"}]
ANSWER = "<|im_start|>assistant\n"


def render(case):
    return TEMPLATES[case["template"]].render(
        case["messages"],
        tools=case["tools"],
        add_generation_prompt=case["add_generation_prompt"],
        **case["kwargs"],
    )


@pytest.mark.parametrize("case", CASES, ids=[f"{c['template']}-{c['name']}" for c in CASES])
def test_the_prompt_is_the_same_to_the_character(case):
    if isinstance(case["rendered"], str):
        assert render(case) == case["rendered"]
        return
    with pytest.raises(TemplateError) as refused:
        render(case)
    assert case["rendered"]["error"] in str(refused.value)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize(
    ("arguments", "begun"),
    [
        ({}, "<think>\n"),
        ({"enable_thinking": True}, "<think>\n"),
        ({"enable_thinking": False}, "<think>\n\n</think>\n\n"),
    ],
)
def test_an_answer_begins_in_a_thought_unless_thinking_is_off(name, arguments, begun):
    assert TEMPLATES[name].render(ASKED, **arguments).endswith(ANSWER + begun)


def test_developer_is_read_as_system():
    def talk(role):
        return [{"role": role, "content": "Be brief."}, *ASKED]

    for template in TEMPLATES.values():
        assert template.render(talk("developer")) == template.render(talk("system"))


@pytest.mark.parametrize(("name", "source"), [("qwen35", QWEN35), ("qwen3.8", QWEN38)])
def test_files_without_a_template_get_that_of_their_name(name, source, tiny_model, tmp_path):
    keys = {"general.architecture": name}
    header = tiny.metadata(tiny.SHAPES["qwen35"], "F32")
    keys |= {k.replace("qwen35.", f"{name}."): v for k, v in header.items() if k[:7] == "qwen35."}
    path = tiny.rewrite(tiny_model("qwen35"), tmp_path / "named.gguf", keys)
    model = tiny.decoder(path)
    assert model.fallback_template() == source
    assert model.efforts["high"] == "xhigh"
    assert model.call.ends_thought
