"""Vectors over HTTP: OpenAI's, llama-server's and Ollama's words, checked before any work."""

import base64
import threading

import numpy as np
import pytest
from falcon.testing import TestClient

from golem_core.plugins import load_plugins
from golem_server import config
from golem_server.app import create_app
from golem_server.service import Service
from tests.embedding import cases, write_tiny
from tests.plugins import tiny, tiny_encoders

CASES = [c for c in cases() if c["text"] and c["used_tokens"] < 512]
TEXTS = [c["text"] for c in CASES]
UNIT = np.array([c["llama_server_unit_f16"] for c in CASES])
# Ids were recorded without parsing special tokens; a server parses them, as llama-server does.
PLAIN = [i for i, c in enumerate(CASES) if c["ids"] == c["ids_parse_special"]]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("embed"))


def serve(*flags):
    settings = config.load([*map(str, flags), "-threads", "2"], load_plugins(), {}).settings
    config.validate(settings)
    service = Service(settings, load_plugins())
    client = TestClient(create_app(service))
    service.load()
    client.service = service
    return client


@pytest.fixture(scope="module")
def client(path):
    made = serve("-embed", path)
    yield made
    made.service.close()


def post(client, path, body):
    return client.simulate_post(path, json=body)


def vectors(answer):
    assert answer.status_code == 200, answer.text
    return np.array([one["embedding"] for one in answer.json["data"]], np.float32)


def test_a_server_with_nothing_but_an_embedder_lives_and_names_it(client):
    assert client.simulate_get("/health").json == {"status": "ok"}
    listed = client.simulate_get("/v1/models").json
    (entry,) = listed["data"]
    assert entry["id"] == "tiny-nomic-moe.f16"
    assert entry["meta"]["n_embd"] == 64
    assert listed["models"][0]["capabilities"] == ["embedding"]
    for path, what in (
        ("/v1/chat/completions", "a chat model, and none is served; start the server with -model"),
        ("/v1/audio/transcriptions", "a speech model, and no installed plugin serves one"),
        ("/v1/images/generations", "a model that makes pictures, and no installed plugin"),
    ):
        refused = client.simulate_post(path, json={})
        assert refused.status_code == 404
        message = refused.json["error"]["message"]
        assert message.startswith(f"File Not Found: this path needs {what}")
    for path in ("/v1/audio", "/v1/chat/completions/x"):
        refused = client.simulate_post(path)
        assert (refused.status_code, refused.json["error"]["message"]) == (404, "File Not Found")
    assert client.simulate_get("/v1/embeddings").json["error"]["message"] == "File Not Found"
    (line,) = [line for line in client.service.lines if "tiny-nomic" in line]
    assert "vectors of 64, texts of 512 tokens, mean pooling" in line
    assert client.service.carries == ["embeddings"]


def test_vectors_are_those_llama_server_answered_in_the_order_asked(client):
    made = vectors(post(client, "/v1/embeddings", {"input": TEXTS}))
    assert (made * UNIT).sum(1)[PLAIN].min() > 0.99999
    np.testing.assert_allclose(made[PLAIN], UNIT[PLAIN], atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1, atol=1e-6)
    again = vectors(post(client, "/v1/embeddings", {"input": TEXTS[::-1]}))
    np.testing.assert_array_equal(again[::-1], made)


def test_the_body_is_openais_with_the_requests_model_and_all_tokens_counted(client):
    body = post(client, "/v1/embeddings", {"input": TEXTS[0], "model": "any"}).json
    count = len(CASES[0]["ids_parse_special"])
    assert body["model"] == "any"
    assert body["object"] == "list"
    assert body["usage"] == {"prompt_tokens": count, "total_tokens": count}
    assert [(d["index"], d["object"]) for d in body["data"]] == [(0, "embedding")]
    named = post(client, "/v1/embeddings", {"input": TEXTS[0]}).json
    assert named["model"] == "tiny-nomic-moe.f16"


def test_base64_holds_the_same_floats(client):
    floats = vectors(post(client, "/v1/embeddings", {"input": TEXTS[:2]}))
    body = {"input": TEXTS[:2], "encoding_format": "base64"}
    data = post(client, "/v1/embeddings", body).json["data"]
    assert {d["encoding_format"] for d in data} == {"base64"}
    decoded = [np.frombuffer(base64.b64decode(d["embedding"]), "<f4") for d in data]
    np.testing.assert_array_equal(decoded, floats)


def test_dimensions_keep_a_prefix_and_make_it_a_unit_vector(client):
    whole = vectors(post(client, "/v1/embeddings", {"input": TEXTS[0]}))[0]
    cut = vectors(post(client, "/v1/embeddings", {"input": TEXTS[0], "dimensions": 16}))[0]
    np.testing.assert_allclose(cut, whole[:16] / np.linalg.norm(whole[:16]), atol=1e-6)


def test_ids_are_used_as_they_are_alone_in_lists_and_among_texts(client):
    ids = CASES[0]["ids_parse_special"]
    by_text = vectors(post(client, "/v1/embeddings", {"input": TEXTS[0]}))
    np.testing.assert_array_equal(vectors(post(client, "/v1/embeddings", {"input": ids})), by_text)
    two = post(client, "/v1/embeddings", {"input": [ids, [0, 5, 2]]})
    np.testing.assert_array_equal(vectors(two)[:1], by_text)
    assert two.json["usage"]["prompt_tokens"] == len(ids) + 3
    mixed = post(client, "/v1/embeddings", {"input": [0, "x", 2]})
    assert vectors(mixed).shape == (1, 64)
    wrapped = post(client, "/v1/embeddings", {"input": [{"prompt_string": TEXTS[0]}]})
    np.testing.assert_array_equal(vectors(wrapped), by_text)


def test_whole_numbers_may_be_written_with_a_point_and_null_is_left_out(client):
    plain, pointed, nothing = (
        vectors(post(client, "/v1/embeddings", {"input": TEXTS[0]} | settings))
        for settings in (
            {"dimensions": 16, "embd_normalize": -1},
            {"dimensions": 16.0, "embd_normalize": -1.0},
            {"dimensions": None, "embd_normalize": None},
        )
    )
    np.testing.assert_array_equal(plain, pointed)
    np.testing.assert_array_equal(
        nothing, vectors(post(client, "/v1/embeddings", {"input": TEXTS[0]}))
    )


def test_other_norms_are_llama_servers(client):
    raw, largest, first = (
        vectors(post(client, "/v1/embeddings", {"input": TEXTS[0], "embd_normalize": n}))[0]
        for n in (-1, 0, 1)
    )
    np.testing.assert_allclose(np.abs(largest).max(), 32760, rtol=1e-6)
    np.testing.assert_allclose(np.abs(first).sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(raw, CASES[0]["pooled_tanh"], atol=1e-5)


def test_content_instead_of_input_is_answered_in_the_native_shape(client):
    (one,) = post(client, "/v1/embeddings", {"content": TEXTS[0]}).json
    expected = vectors(post(client, "/v1/embeddings", {"input": TEXTS[0]}))
    assert one["index"] == 0
    np.testing.assert_array_equal(np.array(one["embedding"], np.float32), expected)


ELEMENTS = (
    '"prompt" elements must be a string, a list of tokens, a JSON object containing a prompt '
    "string, or a list of mixed strings & tokens."
)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, '"input" or "content" must be provided'),
        ({"input": []}, '"input" must not be empty'),
        ({"input": ""}, "Input content cannot be empty"),
        ({"input": ["a", ""]}, "Input content cannot be empty"),
        ({"input": [[]]}, "Input content cannot be empty"),
        ({"input": None}, ELEMENTS),
        ({"input": 5}, ELEMENTS),
        ({"input": {"a": 1}}, ELEMENTS),
        ({"input": ["a", 1.5]}, ELEMENTS),
        ({"input": [[1, True]]}, ELEMENTS),
        (
            {"input": [704]},
            'Prompt contains invalid tokens: "input" holds 704, and ids are 0 to 703',
        ),
        ({"input": [-1]}, "Prompt contains invalid tokens"),
        (
            {"input": "a", "encoding_format": "int8"},
            "The format to return the embeddings in. Can be either float or base64",
        ),
        ({"input": "a", "dimensions": 0}, '"dimensions" must be a whole number from 1 to 64'),
        ({"input": "a", "dimensions": 65}, '"dimensions" must be a whole number from 1 to 64'),
        ({"input": "a", "dimensions": "8"}, '"dimensions" must be a whole number from 1 to 64'),
        ({"input": ["a"] * 2049}, '"input" holds 2049 texts; at most 2048 a request'),
        ({"input": "a", "model": 5}, "Field 'model': type must be string, but is number"),
        ({"input": "a", "embd_normalize": "x"}, '"embd_normalize" must be a whole number'),
    ],
)
def test_what_cannot_be_embedded_is_refused_before_any_work(client, body, message):
    passes = client.service.embedding.stats.passes
    answer = post(client, "/v1/embeddings", body)
    error = answer.json["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert error["message"].startswith(message)
    assert client.service.embedding.stats.passes == passes


def test_a_text_that_is_too_long_refuses_all(client):
    body = {"input": ["short", [5] * 600]}
    error = post(client, "/v1/embeddings", body).json["error"]
    assert error["message"] == (
        "input (600 tokens) is larger than the max context size (512 tokens). skipping"
    )
    assert error["type"] == "exceed_context_size_error"
    assert (error["code"], error["n_prompt_tokens"], error["n_ctx"]) == (400, 600, 512)
    assert vectors(post(client, "/v1/embeddings", {"input": [5] * 512})).shape == (1, 64)


# ---- Ollama ----


def test_ollama_embeds_in_unit_vectors_and_counts(client):
    body = post(client, "/api/embed", {"model": "m", "input": TEXTS[:3]}).json
    expected = vectors(post(client, "/v1/embeddings", {"input": TEXTS[:3]}))
    np.testing.assert_array_equal(np.array(body["embeddings"], np.float32), expected)
    assert body["model"] == "m"
    assert body["prompt_eval_count"] == sum(len(c["ids_parse_special"]) for c in CASES[:3])
    assert body["total_duration"] > 0
    assert "load_duration" not in body


@pytest.mark.parametrize("given", ["", None, []])
def test_ollama_answers_nothing_with_nothing(client, given):
    answer = post(client, "/api/embed", {"model": "m", "input": given})
    assert (answer.status_code, answer.json) == (200, {"model": "m", "embeddings": []})


def test_ollama_embeds_an_empty_text_among_others(client):
    body = post(client, "/api/embed", {"model": "m", "input": [""]}).json
    assert np.array(body["embeddings"]).shape == (1, 64)
    assert body["prompt_eval_count"] == 2


def test_ollama_cuts_what_is_too_long_unless_told_not_to(client):
    long = "the server " * 400
    body = post(client, "/api/embed", {"model": "m", "input": long}).json
    assert body["prompt_eval_count"] == 512
    fewer = {"model": "m", "input": long, "options": {"num_ctx": 100}}
    assert post(client, "/api/embed", fewer).json["prompt_eval_count"] == 100
    refused = post(client, "/api/embed", {"model": "m", "input": long, "truncate": False})
    assert refused.status_code == 400
    assert refused.json == {"error": "the input length exceeds the context length"}


def test_ollama_ignores_dimensions_that_are_no_prefix(client):
    def width(dimensions):
        body = {"model": "m", "input": "a", "dimensions": dimensions}
        return len(post(client, "/api/embed", body).json["embeddings"][0])

    assert [width(d) for d in (16, 16.0, 0, -1, 64, 1000, None)] == [16, 16, 64, 64, 64, 64, 64]


@pytest.mark.parametrize(
    ("route", "body", "text"),
    [
        ("/api/embed", {"input": 5}, "invalid input type"),
        ("/api/embed", {"input": ["a", 5]}, "invalid input type"),
        ("/api/embed", {"input": [[1, 2]]}, "invalid input type"),
        (
            "/api/embed",
            {"input": "a", "options": {"num_ctx": 2}},
            "input after truncation exceeds maximum context length",
        ),
        (
            "/api/embed",
            {"input": "a", "options": {"num_ctx": "8"}},
            'option "num_ctx" must be of type integer',
        ),
        ("/api/embed", {"input": "a", "options": []}, "options must be an object, it is array"),
        ("/api/embed", {"input": "a", "truncate": 0}, "truncate must be a boolean, it is number"),
        (
            "/api/embed",
            {"input": "a", "dimensions": "8"},
            'dimensions must be a whole number, it is "8"',
        ),
        (
            "/api/embed",
            {"input": "a", "dimensions": 8.5},
            "dimensions must be a whole number, it is 8.5",
        ),
        ("/api/embeddings", {"prompt": 5}, "prompt must be a string"),
    ],
)
def test_ollama_refuses_in_its_own_words(client, route, body, text):
    answer = post(client, route, body)
    assert (answer.status_code, answer.json) == (400, {"error": text})


@pytest.mark.parametrize("route", ["/api/embed", "/api/embeddings"])
def test_ollama_refuses_bodies_that_are_none(client, route):
    assert client.simulate_post(route, body="").json == {"error": "missing request body"}
    answer = client.simulate_post(route, body="{")
    assert answer.status_code == 400
    assert list(answer.json) == ["error"]


def test_ollamas_older_form_makes_nothing_of_nothing(client):
    for body in ({}, {"prompt": ""}, {"prompt": None}):
        assert post(client, "/api/embeddings", body).json == {"embedding": []}


def test_ollamas_older_form_gives_one_vector_as_it_was_pooled(client):
    body = post(client, "/api/embeddings", {"model": "m", "prompt": TEXTS[0]}).json
    np.testing.assert_allclose(body["embedding"], CASES[0]["pooled_tanh"], atol=1e-5)
    assert post(client, "/api/embeddings", {"model": "m", "prompt": ""}).json == {"embedding": []}
    cut = post(client, "/api/embeddings", {"model": "m", "prompt": "the server " * 400})
    assert len(cut.json["embedding"]) == 64


def test_ollamas_listings_show_the_embedder_alone_and_beside_a_chat_model(client, path, tmp_path):
    chat = tiny.write(tmp_path / "tiny.gguf", "qwen3")
    both = serve("-model", chat, "-context", "128", "-embed", path)
    try:
        for served, names in ((client, []), (both, ["tiny:latest"])):
            for route in ("/api/tags", "/api/ps"):
                *others, own = served.simulate_get(route).json["models"]
                assert [one["name"] for one in others] == names
                assert own["name"] == own["model"] == "tiny-nomic-moe.f16:latest"
                assert own["size"] == path.stat().st_size
                assert own["details"]["family"] == "nomic-bert-moe"
            assert own["context_length"] == 512
            shown = post(served, "/api/show", {"model": "Tiny-nomic-moe.f16"}).json
            assert shown["capabilities"] == ["embedding"]
            assert shown["model_info"]["nomic-bert-moe.embedding_length"] == 64
            assert shown["golem"] == {"playable": True, "reason": ""} | {
                key: shown["golem"][key] for key in ("pinned", "file")
            }
        assert post(both, "/api/show", {"model": "tiny"}).json["capabilities"][0] == "completion"
        assert client.simulate_get("/api/version").status_code == 200
        assert post(client, "/api/create", {"model": "x"}).status_code == 404
    finally:
        both.service.close()


# ---- ranking, and servers that cannot ----


def test_ranking_is_refused_by_a_model_that_gives_vectors(client):
    answer = post(client, "/v1/rerank", {"query": "a", "documents": ["b"]})
    assert answer.status_code == 501
    assert answer.json["error"]["type"] == "not_supported_error"


@pytest.fixture(scope="module")
def ranker(tmp_path_factory):
    path = tiny_encoders.write(tmp_path_factory.mktemp("rank") / "rank.gguf", "bert-rank")
    made = serve("-embed", path)
    yield made
    made.service.close()


def test_texts_are_ranked_the_best_first(ranker):
    texts = tiny_encoders.TEXTS
    body = {"query": texts[0], "documents": texts, "model": "m"}
    whole = post(ranker, "/v1/rerank", body).json
    assert (whole["model"], whole["object"]) == ("m", "list")
    scores = [one["relevance_score"] for one in whole["results"]]
    assert scores == sorted(scores, reverse=True)
    expected = ranker.service.embedding.rank(texts[0], texts)
    for one in whole["results"]:
        assert one["relevance_score"] == pytest.approx(float(expected[one["index"]]))
    pairs = [ranker.service.embedding.model.encode_pair(texts[0], text) for text in texts]
    assert whole["usage"]["prompt_tokens"] == sum(map(len, pairs))
    two = post(ranker, "/rerank", body | {"top_n": 2}).json["results"]
    assert two == whole["results"][:2]
    tei = {"query": texts[0], "texts": texts, "return_text": True}
    best = post(ranker, "/v1/reranking", tei).json[0]
    assert best == {
        "index": whole["results"][0]["index"],
        "score": scores[0],
        "text": texts[whole["results"][0]["index"]],
    }


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"documents": ["a"]}, '"query" must be provided'),
        ({"query": 5, "documents": ["a"]}, '"query" must be a string'),
        ({"query": "a"}, '"documents" must be a non-empty string array'),
        ({"query": "a", "documents": []}, '"documents" must be a non-empty string array'),
        ({"query": "a", "documents": ["b", 5]}, '"documents" must be a non-empty string array'),
        (
            {"query": "a", "documents": ["b"], "top_n": -1},
            '"top_n" must be a whole number from 0, it is -1',
        ),
    ],
)
def test_what_cannot_be_ranked_is_refused(ranker, body, message):
    answer = post(ranker, "/v1/rerank", body)
    assert (answer.status_code, answer.json["error"]["message"]) == (400, message)


def test_a_model_that_ranks_is_asked_for_no_vectors(ranker):
    for route, body in (("/v1/embeddings", {"input": "a"}), ("/api/embed", {"input": "a"})):
        assert post(ranker, route, body).status_code in (400, 501)


def test_a_text_of_which_no_token_is_left_is_refused(tmp_path):
    client = serve("-embed", tiny_encoders.write(tmp_path / "last.gguf", "qwen3-last"))
    try:
        answer = post(client, "/api/embed", {"input": [""]})
        assert (answer.status_code, answer.json) == (
            400,
            {"error": "Input content cannot be empty"},
        )
    finally:
        client.service.close()


def test_a_chat_model_gives_vectors_too(tmp_path):
    client = serve("-model", tiny.write(tmp_path / "tiny.gguf", "qwen3"), "-context", "128")
    try:
        made = vectors(post(client, "/v1/embeddings", {"input": ["the of and", "of"]}))
        assert made.shape == (2, 256)
        np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1, atol=1e-6)
        alone = vectors(post(client, "/v1/embeddings", {"input": "of"}))
        np.testing.assert_array_equal(alone[0], made[1])
        long = post(client, "/v1/embeddings", {"input": [5] * 129})
        assert long.json["error"]["n_ctx"] == 128
    finally:
        client.service.close()


def test_requests_that_wait_share_passes_and_change_nothing(client):
    expected = [vectors(post(client, "/v1/embeddings", {"input": text})) for text in TEXTS]
    found = [None] * len(TEXTS)

    def ask(i):
        found[i] = vectors(post(client, "/v1/embeddings", {"input": TEXTS[i]}))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(TEXTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)
