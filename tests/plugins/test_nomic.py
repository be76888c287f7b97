"""nomic-embed-text-v2-moe, tiny: ids, vectors and passes against recorded ones.

tests/data/embed: a random model of 4 blocks in the layout of llama.cpp's converter; of 13 texts
the ids that llama-tokenize gave, vectors computed in PyTorch, and those llama-server answered.
"""

import numpy as np
import pytest

from golem_core.cpu import features
from golem_core.formats.gguf import GGUF, write_gguf
from golem_core.model import ModelError
from golem_core.model.embedder import embeds, open_embedder
from tests.embedding import cases, write_tiny
from tests.paths import external

CASES = cases()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("embed"))


@pytest.fixture(scope="module")
def embedder(path):
    made = open_embedder(path, threads=2)
    yield made
    made.close()


def used(embedder):
    return [embedder.cut(np.array(c["ids"], np.int32), 512) for c in CASES]


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def column(name):
    return np.array([c[name] for c in CASES])


def test_ids_are_those_of_llama_tokenize(embedder):
    for case in CASES:
        assert embedder.encode(case["text"]).tolist() == case["ids_parse_special"], case["text"]


def test_a_long_text_keeps_its_first_ids_and_its_end(embedder):
    lengths = [len(ids) for ids in used(embedder)]
    assert lengths == [c["used_tokens"] for c in CASES]
    long = np.array(CASES[-1]["ids"], np.int32)
    assert embedder.cut(long, 100).tolist() == [*long[:99].tolist(), 2]


@pytest.mark.parametrize("isa", features()["available"])
def test_vectors_are_those_of_pytorch(path, isa, monkeypatch):
    monkeypatch.setenv("GOLEM_CPU", isa)
    model = open_embedder(path, threads=2)
    made = model.run(used(model))
    model.close()
    np.testing.assert_allclose(made, column("pooled_tanh"), atol=1e-5)


def test_the_reference_gives_the_same(path):
    model = open_embedder(path, executor="reference")
    np.testing.assert_allclose(model.run(used(model)), column("pooled_tanh"), atol=1e-5)


def test_vectors_are_as_near_to_llama_servers_as_its_tables_allow(embedder):
    made = unit(embedder.run(used(embedder)))
    theirs = column("llama_server_unit_f16")
    assert (made * theirs).sum(1).min() > 0.99999
    np.testing.assert_allclose(made, theirs, atol=1e-3)


def test_an_f32_file_gives_the_same_vectors():
    model = open_embedder(external("nomic/tiny-nomic-moe.f32.gguf"), threads=1)
    made = model.run(used(model))
    model.close()
    np.testing.assert_allclose(made, column("pooled_tanh"), atol=1e-5)
    assert (unit(made) * column("llama_server_unit_f32")).sum(1).min() > 0.99999


def test_a_prefix_made_a_unit_vector_again_is_the_recorded_one(embedder):
    made = unit(embedder.run(used(embedder))[:, :16])
    np.testing.assert_allclose(made, column("unit_tanh_dim16"), atol=1e-5)


def test_a_text_has_the_same_bits_alone_and_in_any_company(embedder):
    texts = used(embedder)
    together = embedder.run(texts)
    alone = np.concatenate([embedder.run([ids]) for ids in texts])
    np.testing.assert_array_equal(alone, together)
    order = np.random.default_rng(0).permutation(len(texts))
    np.testing.assert_array_equal(embedder.run([texts[i] for i in order]), together[order])


def test_the_number_of_threads_changes_no_bit(path, embedder):
    expected = embedder.run(used(embedder))
    for threads in (1, 3):
        model = open_embedder(path, threads=threads)
        np.testing.assert_array_equal(model.run(used(model)), expected)
        model.close()


def changed(path, target, **keys):
    """A copy of the file with other keys; None takes one out."""
    with GGUF.open(path) as file:
        header = dict(file.metadata)
        for key, value in keys.items():
            header[f"nomic-bert-moe.{key}"] = value
        header = {key: value for key, value in header.items() if value is not None}
        tensors = [(n, t.shape, t.type, t.data) for n, t in file.tensors.items()]
        return write_gguf(target, header, tensors)


def test_a_file_that_promises_2048_tokens_was_trained_on_512(path, tmp_path):
    model = open_embedder(changed(path, tmp_path / "a.gguf", context_length=2048), threads=1)
    assert model.context == 512
    model.close()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"pooling_type": 0}, "the file must say how to pool"),
        ({"pooling_type": 9}, "nomic-bert-moe.pooling_type is 9"),
        ({"pooling_type": 4}, "neither cls.weight nor cls.output.weight"),
        ({"attention.head_count": 5}, "a divisor of the width 64"),
        ({"attention.causal": True}, "attention.causal is True"),
        ({"expert_count": 4}, "tensor blk.1.ffn_gate_inp.weight has the shape"),
        ({"expert_used_count": 9}, "expert_used_count is 9"),
        ({"attention.layer_norm_epsilon": None}, "layer_norm_epsilon is missing"),
    ],
)
def test_a_header_that_does_not_fit_is_refused_by_name(path, tmp_path, keys, message):
    with pytest.raises(ModelError, match=message):
        open_embedder(changed(path, tmp_path / "a.gguf", **keys))


def test_the_file_is_known_for_one_that_only_embeds(path):
    assert embeds(path)
