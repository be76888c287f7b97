"""``/v1/systemone`` over HTTP: a server with decisions alone, and the reference's manners."""

import gzip
import json
import re

import pytest
from falcon.testing import TestClient

from golem_core.plugins import load_plugins
from golem_plugins.laya.routes import Decide
from golem_server import config
from golem_server.app import create_app
from golem_server.errors import Refusal
from golem_server.service import Service
from tests.paths import data
from tests.plugins.laya_oracle import assert_equal, body_of, cases, unpack
from tests.server.conftest import Running, reset

PATH, BATCH = "/v1/systemone", "/v1/systemone/batch"
EXTRA = {
    one["name"]: one
    for one in json.loads(gzip.decompress(data("laya/http_extra.json.gz").read_bytes()))
}
CASES = cases("tiny-ml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return unpack("tiny-ml", tmp_path_factory.mktemp("laya"))


def serve(folder, *flags):
    plugins = load_plugins()
    settings = config.load(["-laya", str(folder), "-threads", "2", *flags], plugins, {}).settings
    config.validate(settings)
    service = Service(settings, plugins)
    client = TestClient(create_app(service))
    service.load()
    client.service = service
    return client


@pytest.fixture(scope="module")
def client(folder):
    made = serve(folder)
    yield made
    made.service.close()


def test_a_server_with_decisions_alone_lives_and_is_named(client, folder):
    health = EXTRA["health_loaded"]["body"]
    told = json.loads(json.dumps(health).replace('"english"', '"tiny-ml"'))
    assert client.simulate_get("/health").json == told
    assert client.simulate_get("/v1/models").json["data"][0]["id"] == "laya"
    assert client.service.carries == ["laya"]
    (line,) = client.service.lines
    assert line.startswith(f"laya from {folder}, rows of 160 tokens")
    refused = client.simulate_post("/v1/embeddings", json={})
    assert refused.status_code == 404
    assert "this path needs an embedding or chat model" in refused.json["error"]["message"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_status_and_body_are_the_references(client, case):
    answer = client.simulate_post(PATH, body=body_of(case))
    assert answer.status_code == case["status"]
    found, expected = answer.json, dict(case["response"])
    if answer.status_code == 200:
        found.pop("routing"), expected.pop("routing")
        assert float(answer.headers["X-Inference-Time-Ms"]) > 0
        assert answer.headers["Server-Timing"].startswith("inference;dur=")
    assert_equal(found, expected)
    assert answer.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    "case", [c for c in cases("tiny-en") if c.get("request") is None], ids=lambda c: c["name"]
)
def test_bodies_that_are_no_request_are_refused_alike(client, case):
    answer = client.simulate_post(PATH, body=body_of(case))
    assert (answer.status_code, answer.json) == (case["status"], case["response"])


def extra(answer, name):
    assert (answer.status_code, answer.json) == (EXTRA[name]["status"], EXTRA[name]["body"])


def test_other_methods_are_not_allowed(client):
    answer = client.simulate_get(PATH)
    extra(answer, "get_405")
    assert answer.headers["Allow"] == "POST"


def test_a_body_over_the_limit_is_refused_by_its_length(client):
    extra(client.simulate_post(PATH, body=b" " * ((1 << 20) + 1)), "too_big")


def test_what_the_server_refuses_itself_is_in_the_references_words(client):
    def detail(status):
        return Decide(None).error_body(Refusal("golem's own words", status=status))["detail"]

    assert client.simulate_post(PATH + "/x", body="{}").json == {"detail": "Not Found"}
    assert detail(408) == "request body was not received in time"
    assert detail(413) == "request body too large"
    assert detail(503) == "golem's own words"


def test_a_batchs_refusals_are_the_references(client):
    extra(client.simulate_post(BATCH, json={"states": [], "questions": {}}), "batch_empty")
    extra(client.simulate_post(BATCH, json={"questions": {}}), "batch_missing")
    extra(client.simulate_post(BATCH, json={"states": ["a"] * 65, "questions": {}}), "batch_65")


def test_a_repeated_key_means_its_last_value_and_nan_is_taken(client):
    good = '"q": {"type": "noul", "instructions": "Is it?"}'
    twice = '{"state": NaN, "questions": {"q": {"type": "odd"}, ' + good + "}}"
    answer = client.simulate_post(PATH, body=twice)
    assert answer.status_code == 200
    assert answer.json["answers"]["q"]["type"] == "noul"


def test_a_label_that_json_cannot_write_is_refused_in_the_references_words(client):
    asked = '{"type": "choice", "instructions": "Which?", "criteria": [1e400, 1]}'
    answer = client.simulate_post(PATH, body=f'{{"state": "s", "questions": {{"q": {asked}}}}}')
    assert answer.status_code == 422
    assert answer.json == {"detail": "Out of range float values are not JSON compliant"}


def test_keys_are_asked_for_in_the_references_words(folder):
    client = serve(folder, "-api-key", "secret")
    try:
        extra(client.simulate_post(PATH, json={}), "401")
        extra(client.simulate_get("/health"), "health_noauth")
        headers = {"Authorization": "Bearer secret"}
        assert client.simulate_post(PATH, json={}, headers=headers).status_code == 400
        assert client.simulate_get("/health", headers=headers).json["loaded"] == ["tiny-ml"]
    finally:
        client.service.close()


def test_the_limits_are_settings(folder):
    client = serve(folder, "-laya-questions", "1", "-laya-max-body", "1KiB")
    try:
        question = {"type": "noul", "instructions": "Is it?"}
        two = {"state": "s", "questions": {"a": question, "b": question}}
        answer = client.simulate_post(PATH, json=two)
        assert (answer.status_code, answer.json) == (413, {"detail": "too many questions (2 > 1)"})
        assert client.simulate_post(PATH, body=b" " * 1025).status_code == 413
    finally:
        client.service.close()


@pytest.fixture(scope="module", params=["golem-server", "golem-gunicorn"])
def running(request, folder):
    settings = {"GOLEM_MODEL": "", "GOLEM_LAYA": str(folder), "GOLEM_MAX_BODY": "64MiB"}
    server = Running(request.param, **settings, GOLEM_THREADS="2").ready()
    yield server
    server.stop()


def test_a_running_server_answers(running):
    (case,) = [c for c in CASES if c["name"] == "three_types"]
    status, found = running.post(PATH, body_of(case))
    assert status == 200
    assert_equal(found["answers"], case["response"]["answers"])


def test_a_chunked_body_over_the_limit_is_refused_while_it_is_read(running):
    pieces = (b" " * 65536 for _ in range(17))
    status, _, body = running.request("POST", PATH, pieces)
    assert (status, json.loads(body)) == (413, EXTRA["too_big_chunked"]["body"])


def computed(running):
    """Questions that went through the model so far."""
    text = running.request("GET", "/metrics")[2].decode()
    return float(re.search(r'golem_batch_items_total{of="laya"} (\S+)', text)[1])


@pytest.mark.parametrize("leave", [lambda c: c.close(), reset], ids=["close", "reset"])
def test_nothing_is_decided_for_a_client_that_left(running, leave):
    """But the questions of the pass that runs."""
    question = {"type": "noul", "instructions": "Is it so, or is it not? " * 20}
    asked = {
        "states": ["something to read. " * 60 + str(i) for i in range(64)],
        "questions": {str(i): question for i in range(64)},
    }
    before, start = computed(running), len(running.log)
    connection = running.open(BATCH, asked)
    running.until(lambda: computed(running) > before)
    leave(connection)
    running.wait_for_line(rf"POST {BATCH} 499 ", start)
    one = {"state": "s", "questions": {"q": question}}
    assert running.post(PATH, one)[0] == 200  # after the running pass
    done = computed(running)
    assert done - before < 64 * 64 / 2
    assert running.post(PATH, one)[0] == 200
    assert computed(running) == done + 1
