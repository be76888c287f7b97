"""The built-in Qwen3 template on conversations with tools and thoughts, as the real one has them.

The vectors were rendered with transformers' environment from the template that Qwen3's files
carry; thirteen of them are random conversations. The real template thinks unless it is told not
to, the built-in one only when it is told to.
"""

import gzip
import json

import pytest

from golem_core.text.template import ChatTemplate
from golem_plugins.qwen3.template import TEMPLATE
from tests import paths

VECTORS = json.loads(gzip.decompress(paths.data("text/qwen3_conversations.json.gz").read_bytes()))
CASES = [case for case in VECTORS if isinstance(case["rendered"], str)]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_prompt_is_the_same_to_the_character(case):
    text = ChatTemplate(TEMPLATE).render(
        case["messages"],
        tools=case["tools"],
        add_generation_prompt=case["add_generation_prompt"],
        **{"enable_thinking": True, **case["kwargs"]},
    )
    assert text == case["rendered"]
