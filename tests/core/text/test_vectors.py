"""Ids, pieces and ends of generation equal llama.cpp's, on vocabularies of every kind.

The small ones in tests/data were made so that a cut in another place gives other ids; the real
ones lie outside of the repository.
"""

import json

import pytest

from golem_core.formats.gguf import GGUF
from golem_core.text import load_tokenizer
from golem_core.text.split import SPLITTERS
from tests import paths
from tests.core.text.vocabularies import recorded

SMALL = recorded()["vocabularies"]
REAL = ["gpt-2", "llama-bpe", "qwen2", "qwen35", "gemma-4", "llama-spm", "nomic-bert-moe"]


def assert_same(tokenizer, record):
    for text, plain, special in zip(
        recorded()["texts"], record["plain"], record["special"], strict=True
    ):
        assert tokenizer.encode(text, parse_special=False) == plain, text
        assert tokenizer.encode(text, add_special=True) == special, text


@pytest.mark.parametrize("name", SMALL)
def test_small_vocabularies_give_llama_cpps_ids(name):
    assert_same(load_tokenizer(SMALL[name]["metadata"]), SMALL[name])


@pytest.mark.parametrize("pre", SPLITTERS)
def test_pre_tokenizers_cut_where_llama_cpp_cuts(pre):
    header = recorded()["bytes"]["metadata"] | {"tokenizer.ggml.pre": pre}
    assert_same(load_tokenizer(header), recorded()["pre"][pre])


@pytest.mark.parametrize("name", [*SMALL, "bytes"])
def test_pieces_and_ends_are_llama_cpps(name):
    record = recorded()["bytes"] if name == "bytes" else SMALL[name]
    tokenizer = load_tokenizer(record["metadata"])
    assert tokenizer.n_vocab == len(record["pieces"])
    for token, (hidden, shown) in enumerate(record["pieces"]):
        assert tokenizer.piece(token) == bytes.fromhex(hidden)
        assert tokenizer.piece(token, special=True) == bytes.fromhex(shown)
    assert sorted(tokenizer.eog) == record["eog"]


@pytest.mark.parametrize("name", [*REAL, "smollm"])
def test_real_vocabularies_give_llama_cpps_ids(name):
    path = (
        paths.smollm2()
        if name == "smollm"
        else paths.external(f"llamacpp/vocab/ggml-vocab-{name}.gguf")
    )
    vectors = json.loads(paths.external(f"llamacpp/vocab/{name}.vectors.json").read_text())
    with GGUF.open(path) as file:
        tokenizer = load_tokenizer(file.metadata)
    assert len(vectors) > 40
    for vector in vectors:
        assert tokenizer.encode(vector["text"], parse_special=False) == vector["ids"]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("gemma4", "gemma4_e2b.gguf"),
        ("qwen2", "qwen3.gguf"),
        ("qwen35", "qwen3_5.gguf"),
    ],
)
def test_tiny_models_give_llama_cpps_ids(name, file):
    vectors = json.loads(paths.external("gemma_qwen/tokenizer_mini.json").read_text())[name]
    with GGUF.open(paths.external(f"gemma_qwen/gguf/{file}")) as opened:
        tokenizer = load_tokenizer(opened.metadata)
    for vector in vectors:
        assert tokenizer.encode(vector["text"], add_special=True) == vector["ids_special"]
        assert tokenizer.encode(vector["text"], parse_special=False) == vector["ids_plain"]


def test_the_tiny_nomic_model_gives_llama_cpps_ids():
    cases = json.loads(paths.external("nomic/vectors.json").read_text())["cases"]
    with GGUF.open(paths.external("nomic/tiny-nomic-moe.f16.gguf")) as file:
        tokenizer = load_tokenizer(file.metadata)
    for case in cases:
        ids = tokenizer.encode(case["text"], add_special=True)
        assert ids == case["ids_parse_special"], case["text"]


@pytest.mark.real
def test_gemma_3_loads():
    with GGUF.open(paths.gemma3_270m()) as file:
        tokenizer = load_tokenizer(file.metadata)
    assert tokenizer.n_vocab == 262144
    assert (tokenizer.bos, tokenizer.add_bos) == (2, True)
    assert tokenizer.text(106) == "<end_of_turn>"
    assert {1, 106} <= tokenizer.eog
    text = "The quick brown fox,\n\n\tdéjà vu 🦊  twice."
    ids = tokenizer.encode(text, add_special=True)
    assert ids[0] == 2
    assert tokenizer.decode(ids) == text
