"""Opening a model: what it knows afterwards, and how what cannot be served is refused."""

import gc
import logging

import numpy as np
import pytest

from golem_core.formats.gguf import GGUF
from golem_core.formats.writer import write_gguf
from golem_core.model import open_decoder
from tests.plugins import tiny


def refusal(path, **settings):
    with pytest.raises(ValueError) as caught:
        open_decoder(path, executor="reference", **settings)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture
def llama(tiny_model):
    return tiny_model("llama")


def test_a_model_knows_what_its_file_says(llama):
    model = open_decoder(llama, context=1000, parallel=3, executor="reference")
    assert (model.name, model.architecture, model.file_type) == ("llama-f32", "llama", "F32")
    assert (model.blocks, model.context_length, model.n_vocab) == (3, 2048, 480)
    assert (model.slots, model.context, model.pass_width) == (3, 333, 512)
    assert (model.window, model.ring, model.quantum) == (0, 0, 1)
    assert model.size_bytes == sum(a.nbytes for _, a in tiny.weights("llama"))
    assert model.n_params == sum(a.size for _, a in tiny.weights("llama"))
    assert model.template_source == "builtin"
    assert model.eog and all(0 <= id < 480 for id in model.eog)
    model.close()


@pytest.mark.parametrize("executor", ["cpu", "reference"])
def test_a_closed_model_keeps_neither_map_nor_cache_whoever_holds_it(llama, executor):
    model = open_decoder(llama, context=64, executor=executor)
    file = str(llama)
    with open("/proc/self/maps") as maps:
        assert any(line.rstrip().endswith(file) for line in maps)
    assert model.executor.states.rings
    model.close()
    gc.collect()
    with open("/proc/self/maps") as maps:
        assert not any(line.rstrip().endswith(file) for line in maps)
    assert not model.executor.states.rings


def test_a_sliding_model_tells_its_window_and_ring(tiny_model):
    model = open_decoder(tiny_model("gemma3"), pass_width=48, executor="reference")
    assert (model.window, model.ring) == (16, 64)
    model.close()


def test_a_context_of_0_is_the_trained_one(llama):
    model = open_decoder(llama, context=0, parallel=2, executor="reference")
    assert model.context == 1024
    model.close()


def test_the_files_sampling_values_are_kept(llama, tmp_path):
    keys = {"general.sampling.temp": 0.25, "general.sampling.top_k": 7}
    path = tiny.rewrite(llama, tmp_path / "m.gguf", keys)
    model = open_decoder(path, executor="reference")
    assert model.sampling == {"temp": 0.25, "top_k": 7}
    model.close()


def test_the_files_own_template_is_used_unless_the_builtin_is_asked_for(llama, tmp_path):
    keys = {"tokenizer.chat_template": "{{ messages[0].content }}!"}
    path = tiny.rewrite(llama, tmp_path / "m.gguf", keys)
    talk = [{"role": "user", "content": "hi"}]
    model = open_decoder(path, executor="reference")
    assert (model.template_source, model.template.render(talk)) == ("file", "hi!")
    model.close()
    model = open_decoder(path, executor="reference", builtin_template=True)
    assert model.template_source == "builtin"
    assert model.template.render(talk) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    model.close()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"context": 3, "parallel": 4}, "a context of 3 cut into 4 slot(s) leaves 0 position(s)"),
        (
            {"context": 1},
            "leaves 1 position(s) each, and a token and its answer take 2; raise -con",
        ),
        ({"context": 5, "parallel": 3}, "5 cut into 3 slot(s) leaves 1 position(s) each"),
        ({"parallel": 0}, "0 slots: -parallel must be at least 1"),
        ({"context": -1}, "a context of -1: -context is 0"),
        ({"pass_width": 0}, "a pass of 0 columns"),
        ({"rope_scaling": "ntk"}, "-rope-scaling ntk: it is one of none, linear, yarn"),
        ({"rope_scale": 0.0}, "-rope-scale 0: it must be more than 0"),
        ({"rope_freq_base": 1.0}, "-rope-freq-base 1: it must be more than 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(llama, settings, text):
    assert text in refusal(llama, **settings)


def test_an_architecture_nobody_serves_is_named_with_those_installed(llama, tmp_path):
    text = refusal(tiny.rewrite(llama, tmp_path / "m.gguf", {"general.architecture": "mamba"}))
    names = text.split("installed: ")[1].split(", ")
    assert '"mamba"' in text and {"gemma3", "llama", "qwen3", "qwen3moe"} <= set(names)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"general.type": "adapter"}, "this is a LoRA adapter"),
        ({"adapter.type": "lora"}, "this is a LoRA adapter"),
        ({"general.architecture": "clip"}, "a projector for pictures or sound"),
        ({"general.type": "imatrix"}, "an importance matrix"),
        ({"general.architecture": "t5"}, "t5 is an encoder-decoder model"),
        ({"llama.attention.causal": False}, "only causal models chat"),
    ],
)
def test_files_that_are_no_chat_models_are_refused_by_name(llama, tmp_path, keys, text):
    assert text in refusal(tiny.rewrite(llama, tmp_path / "m.gguf", keys))


def test_a_vocabulary_without_weights_is_refused(llama, tmp_path):
    with GGUF.open(llama) as file:
        path = write_gguf(tmp_path / "v.gguf", dict(file.metadata), [])
    assert "a vocabulary and no weights" in refusal(path)


@pytest.mark.parametrize(
    "name", ["token_embd", "output_norm", "blk.1.attn_k", "blk.2.ffn_down", "blk.0.attn_norm"]
)
def test_a_missing_tensor_is_named_with_its_shape(llama, tmp_path, name):
    full = f"{name}.weight"
    shape = dict(tiny.weights("llama"))[name].shape
    text = refusal(tiny.rewrite(llama, tmp_path / "m.gguf", drop=[full]))
    assert full in text
    if name != "token_embd":  # whose rows are told by itself alone
        assert str(shape) in text


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("blk.1.attn_q", (128, 256)),
        ("blk.1.attn_output", (256, 128)),
        ("blk.0.ffn_up", (256, 256)),
        ("blk.2.ffn_norm", (128,)),
        ("output", (479, 256)),
        ("token_embd", (480, 128)),
    ],
)
def test_a_tensor_of_another_shape_is_named_with_both(llama, tmp_path, name, shape):
    wanted = dict(tiny.weights("llama"))[name].shape
    path = tiny.rewrite(llama, tmp_path / "m.gguf", tensors={f"{name}.weight": np.ones(shape)})
    text = refusal(path)
    assert name in text and str(shape) in text and str(wanted) in text


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"llama.attention.head_count": 3}, "a divisor of the 3 heads"),
        ({"llama.attention.head_count_kv": 3}, "a divisor of the 4 heads"),
        ({"llama.block_count": None}, "llama.block_count is missing"),
        ({"llama.block_count": 4}, "blk.3.attn_norm.weight"),
        ({"llama.rope.dimension_count": 128}, "an even number up to the head's 64"),
        ({"llama.context_length": 0}, "llama.context_length is 0"),
        ({"llama.attention.layer_norm_rms_epsilon": "x"}, "a finite number"),
        ({"llama.embedding_length": 128}, "token_embd.weight"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(llama, tmp_path, keys, text):
    assert text in refusal(tiny.rewrite(llama, tmp_path / "m.gguf", keys))


def test_a_vocabulary_of_another_size_than_the_embedding_is_refused(llama, tmp_path):
    with GGUF.open(llama) as file:
        tokens = list(file.metadata["tokenizer.ggml.tokens"])[:-1]
        types = file.metadata["tokenizer.ggml.token_type"][:-1]
    keys = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    text = refusal(tiny.rewrite(llama, tmp_path / "m.gguf", keys))
    assert "479 tokens" in text and "480 rows" in text


def test_a_vocabulary_nobody_can_read_is_refused_with_the_file(llama, tmp_path):
    text = refusal(tiny.rewrite(llama, tmp_path / "m.gguf", {"tokenizer.ggml.model": "rwkv"}))
    assert "m.gguf: " in text and "'rwkv'" in text


def test_a_template_nobody_can_read_is_warned_about_and_replaced(llama, tmp_path, caplog):
    keys = {"tokenizer.chat_template": "{% for %}"}
    path = tiny.rewrite(llama, tmp_path / "m.gguf", keys)
    model = open_decoder(path, executor="reference")
    assert model.template_source == "builtin"
    assert "m.gguf: the chat template" in caplog.text and "line 1" in caplog.text
    model.close()


def test_a_tensor_nobody_uses_is_told_at_debug_level(llama, tmp_path, caplog):
    path = tiny.rewrite(llama, tmp_path / "m.gguf", tensors={"blk.0.extra.weight": np.ones(4)})
    with caplog.at_level(logging.DEBUG, "golem.model"):
        open_decoder(path, executor="reference").close()
    assert "not used: blk.0.extra.weight" in caplog.text


def test_more_context_than_trained_is_warned_about_unless_it_is_stretched(llama, caplog):
    open_decoder(llama, context=4096, executor="reference").close()
    assert "trained on 2048" in caplog.text and "RoPE scaling: yarn, by 2" in caplog.text
    assert " -" not in caplog.text.split("llama", 1)[1]  # not every caller has these flags
    caplog.clear()
    open_decoder(
        llama, context=4096, executor="reference", rope_scaling="yarn", rope_scale=2.0
    ).close()
    assert not caplog.text
