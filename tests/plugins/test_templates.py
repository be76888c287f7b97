"""The built-in chat templates: the turns of each family, spelled out."""

import pytest

from golem_core.text.template import ChatTemplate
from golem_plugins.gemma3.template import TEMPLATE as GEMMA3
from golem_plugins.llama.templates import CHATML, LLAMA2, LLAMA3
from golem_plugins.qwen3.template import TEMPLATE as QWEN3
from tests.plugins import tiny

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Bye"},
]
_CHATML = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
)
_LLAMA3 = "<B>" + "".join(
    f"<|start_header_id|>{m['role']}<|end_header_id|>\n\n{m['content']}<|eot_id|>" for m in TALK
)
_LLAMA2 = "<B>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello. <E><B>[INST] Bye [/INST]"
_GEMMA3 = (
    "<B><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n"
    "<start_of_turn>model\nHello.<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n"
)


@pytest.mark.parametrize(
    ("source", "turns", "opening"),
    [
        (CHATML, _CHATML, "<|im_start|>assistant\n"),
        (QWEN3, _CHATML, "<|im_start|>assistant\n<think>\n\n</think>\n\n"),
        (LLAMA3, _LLAMA3, "<|start_header_id|>assistant<|end_header_id|>\n\n"),
        (LLAMA2, _LLAMA2, ""),
        (GEMMA3, _GEMMA3, "<start_of_turn>model\n"),
    ],
    ids=["chatml", "qwen3", "llama3", "llama2", "gemma3"],
)
def test_turns_are_written_as_the_family_was_trained(source, turns, opening):
    template = ChatTemplate(source, bos_token="<B>", eos_token="<E>")
    assert template.render(TALK, add_generation_prompt=False) == turns
    assert template.render(TALK) == turns + opening


def test_qwen3_thinks_when_asked_to():
    template = ChatTemplate(QWEN3)
    assert template.render(TALK, enable_thinking=True) == _CHATML + "<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("token", "source"),
    [("<|im_start|>", CHATML), ("<|start_header_id|>", LLAMA3), ("other", LLAMA2)],
)
def test_llama_tells_its_template_by_its_vocabulary(token, source, tiny_model, tmp_path):
    tokens = [token, *(f"t{i}" for i in range(479))]
    keys = {"tokenizer.ggml.tokens": tokens}
    path = tiny.rewrite(tiny_model("llama"), tmp_path / "m.gguf", keys)
    assert tiny.decoder(path).fallback_template() == source
