"""Vectors from running servers: real clients, many texts, clients that leave."""

import json
import re
from pathlib import Path

import numpy as np
import openai
import psutil
import pytest

from benchmarks import invented_encoder
from tests.embedding import write_tiny
from tests.server.conftest import Running, reset
from tests.server.test_embeddings import CASES, PLAIN, TEXTS, UNIT


@pytest.fixture(scope="module", params=["golem-server", "golem-gunicorn"])
def running(request, tmp_path_factory):
    path = write_tiny(tmp_path_factory.mktemp("embed"))
    settings = {"GOLEM_MODEL": "", "GOLEM_EMBED": str(path), "GOLEM_MAX_BODY": "64MiB"}
    server = Running(request.param, **settings, GOLEM_THREADS="2").ready()
    yield server
    server.stop()


def test_openais_client_reads_the_vectors(running):
    client = openai.OpenAI(base_url=running.url + "/v1", api_key="none", max_retries=0)
    made = client.embeddings.create(model="m", input=TEXTS)  # it asks for base64
    found = np.array([one.embedding for one in made.data])
    assert (found * UNIT).sum(1)[PLAIN].min() > 0.99999
    client.close()


def test_ollamas_client_reads_the_vectors(running):
    ollama = pytest.importorskip("ollama", reason="the package ollama is not installed")
    client = ollama.Client(host=running.url)
    made = client.embed(model="m", input=TEXTS, keep_alive="5m")
    assert (np.array(made.embeddings) * UNIT).sum(1)[PLAIN].min() > 0.99999
    one = client.embeddings(model="m", prompt=TEXTS[0])
    np.testing.assert_allclose(one.embedding, CASES[0]["pooled_tanh"], atol=1e-5)
    with pytest.raises(ollama.ResponseError, match="exceeds the context length"):
        client.embed(model="m", input="the server " * 400, truncate=False)


def test_a_request_of_2048_texts_streams_through(running):
    texts = [[0, 4 + i % 700, 5 + i % 300, 2] * (1 + i % 9) for i in range(2048)]
    status, headers, body = running.request(
        "POST", "/v1/embeddings", json.dumps({"input": texts}).encode()
    )
    assert status == 200
    assert headers["Transfer-Encoding"] == "chunked"
    data = json.loads(body)["data"]
    assert [one["index"] for one in data] == list(range(2048))
    _, alone = running.post("/v1/embeddings", {"input": texts[1999]})
    assert alone["data"][0]["embedding"] == data[1999]["embedding"]


def test_a_short_request_is_answered_while_a_long_one_runs(running):
    texts = [[0, *range(4, 500), 2]] * 1000
    connection = running.open("/v1/embeddings", {"input": texts})
    assert connection.recv(1)
    status, _ = running.post("/v1/embeddings", {"input": "search_query: golem"})
    assert status == 200
    connection.close()


@pytest.mark.parametrize("kind", ["golem-server", "golem-gunicorn"])
def test_memory_does_not_grow_with_the_texts_of_a_request(kind, tmp_path):
    """Peaks after 512 and after 2048 texts of 768 values, whose answer has 32 MiB."""
    path = invented_encoder.write(tmp_path / "wide.gguf", blocks=1, vocabulary=512)
    settings = {"GOLEM_MODEL": "", "GOLEM_EMBED": str(path), "GOLEM_THREADS": "2"}
    server = Running(kind, **settings, GOLEM_MAX_BODY="64MiB").ready()
    try:

        def peak(count):
            texts = [[0, 5 + i % 200, 6, 2] for i in range(count)]
            body = json.dumps({"input": texts}).encode()
            status, _, answer = server.request("POST", "/v1/embeddings", body)
            assert (status, answer.count(b'"object":"embedding"')) == (200, count)
            top = psutil.Process(server.process.pid)
            pids = [top.pid, *(child.pid for child in top.children())]
            told = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
            return max(int(re.search(r"VmHWM:\s+(\d+)", text)[1]) for text in told) << 10

        few, many = peak(512), peak(2048)
        assert many - few < 64 << 20  # 120 MiB where it is made whole
    finally:
        server.stop()


def computed(running):
    """Texts that went through the model so far."""
    text = running.request("GET", "/metrics")[2].decode()
    return float(re.search(r'golem_batch_items_total{of="embeddings"} (\S+)', text)[1])


@pytest.mark.parametrize("leave", [lambda c: c.close(), reset], ids=["close", "reset"])
@pytest.mark.parametrize("reads", [True, False], ids=["midway", "early"])
def test_a_client_that_leaves_is_dropped(running, leave, reads):
    """None of its texts is computed any more but those of the pass that runs."""
    texts = [[0, *range(4, 500), 2]] * 2048
    before, start = computed(running), len(running.log)
    connection = running.open("/v1/embeddings", {"input": texts})
    if reads:
        assert connection.recv(1)
    else:
        running.until(lambda: computed(running) > before)
    leave(connection)
    sent = running.wait_for_line(r"POST /v1/embeddings \d+ (\d+) bytes .* 2048 texts", start)[1]
    assert int(sent) < 2048 * 64 * 8  # all of it would be more
    assert running.post("/v1/embeddings", {"input": "a"})[0] == 200  # after the running pass
    done = computed(running)
    assert done - before < 1024
    assert running.post("/v1/embeddings", {"input": "a"})[0] == 200
    assert computed(running) == done + 1
