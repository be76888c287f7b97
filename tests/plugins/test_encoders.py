"""Encoders of every architecture and pooling against llama-server, and a real one against PyTorch.

tests/data/embed/tiny_encoders.npz and minilm.npz were written by ref/embed_vectors.py.
"""

from dataclasses import replace

import numpy as np
import pytest

from golem_core.cpu import features
from golem_core.embedding import Embedding, TextTooLong, unit
from golem_core.model import ModelError
from golem_core.model.embedder import open_embedder
from golem_core.model.errors import CannotEmbed
from tests.paths import data
from tests.plugins import minilm, tiny, tiny_encoders

RECORDED = np.load(data("embed/tiny_encoders.npz"))
POOLED = [kind for kind in tiny_encoders.KINDS if kind != "bert-rank"]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoders")
    return {k: tiny_encoders.write(folder / f"{k}.gguf", k) for k in tiny_encoders.KINDS}


def run(path, texts=tiny_encoders.TEXTS, **options):
    model = open_embedder(path, **{"threads": 2, **options})
    made = model.run([model.encode(text) for text in texts])
    model.close()
    return made


def cosines(a, b):
    return (unit(a) * unit(b)).sum(1)


@pytest.mark.parametrize("isa", features()["available"])
@pytest.mark.parametrize("kind", POOLED)
def test_vectors_are_llama_servers(paths, kind, isa, monkeypatch):
    monkeypatch.setenv("GOLEM_CPU", isa)
    made = run(paths[kind])
    assert cosines(made, RECORDED[kind]).min() > 0.99999
    # llama.cpp takes its GELU from a table of f16 and keeps keys in f16.
    np.testing.assert_allclose(made, RECORDED[kind], atol=5e-3)


@pytest.mark.parametrize("kind", tiny_encoders.KINDS)
def test_executor_and_reference_agree(paths, kind):
    mine, truth = run(paths[kind]), run(paths[kind], executor="reference")
    np.testing.assert_allclose(mine, truth, atol=1e-5 * np.abs(truth).max())


@pytest.mark.parametrize("kind", tiny_encoders.KINDS)
def test_a_text_has_the_same_bits_alone_and_in_company(paths, kind):
    together = run(paths[kind])
    alone = [run(paths[kind], [text]) for text in tiny_encoders.TEXTS]
    np.testing.assert_array_equal(np.concatenate(alone), together)


def test_scores_are_llama_servers_over_pairs_framed_alike(paths):
    """llama-server leaves out the separator at the end that cross-encoders are trained with."""
    model = open_embedder(paths["bert-rank"], threads=1)
    pairs = [model.encode_pair(tiny_encoders.TEXTS[0], text) for text in tiny_encoders.TEXTS]
    assert all(pair[0] == 2 and pair[-1] == 3 and (pair == 3).sum() == 2 for pair in pairs)
    made = model.run([pair[:-1] for pair in pairs])
    np.testing.assert_allclose(made[:, 0], RECORDED["bert-rank"], atol=5e-3)
    model.close()


def test_a_files_own_prompt_takes_question_and_text_as_they_are(paths):
    model = replace(
        open_embedder(paths["bert-rank"], threads=1), rerank_prompt="{query} {document}"
    )
    try:
        made = model.encode_pair("a {document}", "{query} b")
        expected = model.tokenizer.encode("a {document} {query} b", parse_special=True)
        assert made.tolist() == expected
    finally:
        model.close()


def test_a_model_that_ranks_gives_no_vectors_and_the_other_way_round(paths):
    with Embedding(open_embedder(paths["bert-rank"], threads=1)) as model:
        texts = tiny_encoders.TEXTS
        scores = model.rank(texts[0], texts[1:])
        assert scores.shape == (len(texts) - 1,)
        with pytest.raises(CannotEmbed, match="use rank"):
            model.embed("a")
    with Embedding(open_embedder(paths["bert-cls"], threads=1)) as model:
        with pytest.raises(CannotEmbed, match="use embed"):
            model.rank("a", ["b"])
        with pytest.raises(TextTooLong) as refused:
            model.embed(["a", "a " * 200])
        assert (refused.value.index, refused.value.context) == (1, 128)
        assert model.embed("a " * 200, truncate=True).shape == (64,)
        assert model.embed(["a", "b"], dimensions=8).shape == (2, 8)


def test_a_chat_models_hidden_rows_are_its_vectors(tmp_path):
    """The last token's row before the head, as the chat program itself computes it."""
    path = tiny.write(tmp_path / "tiny.gguf", "qwen3")
    model = open_embedder(path, threads=1)
    ids = model.encode("the of and")
    made = model.run([ids])
    model.close()
    chat = tiny.executor("reference", tiny.decoder(path))
    expected = tiny.run(chat, (0, 0, ids.tolist(), 1), wanted=("hidden",))["hidden"][-1:]
    np.testing.assert_allclose(made, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"bert.context_length": 200}, "position_embd.weight has the shape"),
        ({"bert.attention.head_count": 7}, "a divisor of the width 64"),
        ({"bert.feed_forward_length": 95}, "ffn_up.weight has the shape"),
        ({"general.architecture": "t5encoder"}, "no chat model; golem does not serve them"),
        ({"general.architecture": "odd"}, '"odd"'),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(paths, tmp_path, keys, message):
    with pytest.raises(ModelError, match=message):
        open_embedder(tiny.rewrite(paths["bert-cls"], tmp_path / "a.gguf", keys))


def test_too_little_memory_is_said_before_anything_is_loaded(paths):
    with pytest.raises(ModelError, match="a smaller model or quantisation may fit"):
        open_embedder(paths["bert-cls"], limit=1000)


# ---- a real model


@pytest.mark.parametrize(("kind", "least"), [("F32", 0.999999), ("F16", 0.99999), ("Q8_0", 0.998)])
def test_a_real_model_gives_the_vectors_of_pytorch(tmp_path, kind, least):
    recorded = np.load(data("embed/minilm.npz"))
    path = minilm.convert(minilm.folder(), tmp_path / "minilm.gguf", kind)
    model = open_embedder(path, threads=2)
    ids = [model.encode(text) for text in minilm.TEXTS]
    for mine, theirs in zip(ids, recorded["ids"], strict=True):
        assert mine.tolist() == theirs[theirs >= 0].tolist()
    assert cosines(model.run(ids), recorded["vectors"]).min() > least
    model.close()
