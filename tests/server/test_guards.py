"""Keys, origins and names in the Host header, asked of the application without a socket."""

import pytest
from falcon.testing import TestClient

from golem_core.plugins import Plugins
from golem_core.settings import SettingsError
from golem_server import config
from golem_server.app import create_app
from golem_server.service import Phase, Service
from tests.server.conftest import chat_body
from tests.server.fake import open_fake


@pytest.fixture
def client():
    """Makes clients of an application with the given flags; the last one's model is closed."""
    made = []

    def make(*flags, plugins=None):
        plugins = plugins or Plugins()
        settings = config.load(["-model", "m.gguf", *flags], plugins, {}).settings
        service = Service(settings, plugins, open_fake)
        application = create_app(service)
        application.write = made.append
        service.load()
        made.append(service)
        client = TestClient(application)
        client.service = service
        return client

    yield make
    for one in made:
        if isinstance(one, Service):
            one.close()


def models(client, headers=None, address="127.0.0.1", host="localhost"):
    return client.simulate_get("/v1/models", headers=headers, remote_addr=address, host=host)


# ---- keys ----


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer one"},
        {"Authorization": "two"},
        {"X-Api-Key": "one"},
        {"X-Api-Key": "Bearer two"},
        {"Authorization": "bearer one"},
        {"Authorization": "BEARER  two"},
    ],
)
def test_a_key_is_taken_from_either_header(client, headers):
    asked = client("-api-key", "one,two")
    assert models(asked, headers).status_code == 200


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer on"}, {"X-Api-Key": "ones"}])
def test_a_wrong_or_missing_key_is_a_401(client, headers):
    asked = client("-api-key", "one")
    answer = models(asked, headers)
    assert answer.status_code == 401
    assert answer.json["error"] == {
        "code": 401,
        "message": "Invalid API Key",
        "type": "authentication_error",
        "param": None,
    }
    chat = asked.simulate_post("/v1/chat/completions", json=chat_body("hello"), headers=headers)
    assert chat.status_code == 401


@pytest.mark.parametrize(
    "path",
    ["/v1/models", "/models", "/v1/models/m", "/health", "/health/live", "/metrics", "/nope"],
)
def test_head_is_get_without_its_body(client, path):
    asked = client()
    got, head = asked.simulate_get(path), asked.simulate_head(path)
    assert (head.status_code, head.text) == (got.status_code, "")
    assert head.headers["Content-Type"] == got.headers["Content-Type"]
    assert head.headers["Content-Length"] == got.headers["Content-Length"]


def test_health_needs_no_key(client):
    asked = client("-api-key", "one")
    for path in ("/health", "/v1/health", "/health/live", "/health/ready"):
        assert asked.simulate_get(path).json == {"status": "ok"}
        assert asked.simulate_head(path).status_code == 200


def test_keys_come_from_a_file_too(client, tmp_path):
    file = tmp_path / "keys"
    file.write_text("# for the team\nalpha\n\n  beta \n")
    asked = client("-api-key-file", str(file), "-api-key", "gamma")
    for key in ("alpha", "beta", "gamma"):
        assert models(asked, {"X-Api-Key": key}).status_code == 200
    assert models(asked, {"X-Api-Key": "# for the team"}).status_code == 401


def test_a_file_without_a_key_is_refused(client, tmp_path):
    file = tmp_path / "keys"
    file.write_text("# nothing\n")
    with pytest.raises(SettingsError, match="holds no key"):
        client("-api-key-file", str(file))


# ---- the Host header ----


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "127.0.0.1", "[::1]:8080", "app.localhost", "10.0.0.7"]
)
def test_names_of_this_machine_are_accepted(client, host):
    assert models(client(), {"Host": host}).status_code == 200


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "127.8.8.8"])
def test_a_foreign_name_from_this_machine_is_refused_with_the_flag(client, address):
    answer = models(client(), {"Host": "evil.example:8080"}, address)
    assert answer.status_code == 403
    assert answer.json["error"]["type"] == "permission_error"
    assert '"evil.example"' in answer.json["error"]["message"]
    assert "-allowed-hosts" in answer.json["error"]["message"]


def test_a_foreign_name_is_accepted_from_elsewhere_or_when_allowed(client):
    host = {"Host": "golem.example"}
    assert models(client(), host, "192.168.1.9").status_code == 200
    assert models(client("-allowed-hosts", "Golem.example"), host).status_code == 200
    assert models(client("-allowed-hosts", "*"), host).status_code == 200


# ---- origins ----


def test_no_origin_may_read_answers_by_default(client):
    answer = models(client(), {"Origin": "http://page.example"})
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_a_named_origin_may_and_its_preflight_needs_no_key(client):
    asked = client("-cors", "http://page.example", "-api-key", "one")
    preflight = asked.simulate_options(
        "/v1/chat/completions",
        headers={
            "Origin": "http://page.example",
            "Access-Control-Request-Headers": "authorization, content-type",
        },
    )
    assert preflight.status_code == 200
    assert preflight.text == ""
    assert preflight.headers["Access-Control-Allow-Origin"] == "http://page.example"
    assert preflight.headers["Access-Control-Allow-Credentials"] == "true"
    assert preflight.headers["Access-Control-Allow-Methods"] == "GET, POST, DELETE, OPTIONS"
    assert preflight.headers["Access-Control-Allow-Headers"] == "authorization, content-type"
    refused = models(asked, {"Origin": "http://page.example"})
    assert refused.status_code == 401
    assert refused.headers["Access-Control-Allow-Origin"] == "http://page.example"


def test_another_origin_may_not(client):
    asked = client("-cors", "http://page.example")
    answer = models(asked, {"Origin": "http://other.example"})
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert answer.headers["Vary"] == "Origin"
    options = asked.simulate_options("/v1/models", headers={"Origin": "http://other.example"})
    assert options.status_code == 404


def test_any_origin_gets_no_credentials(client):
    answer = models(client("-cors", "*"), {"Origin": "http://any.example"})
    assert answer.headers["Access-Control-Allow-Origin"] == "http://any.example"
    assert "Access-Control-Allow-Credentials" not in answer.headers


# ---- life ----


def test_a_draining_server_refuses_work_and_says_so(client):
    asked = client()
    asked.service.phase = Phase.DRAINING
    assert asked.simulate_get("/health").status_code == 503
    assert asked.simulate_get("/health").json == {"status": "draining"}
    assert asked.simulate_get("/health/live").status_code == 200
    answer = asked.simulate_post("/v1/chat/completions", json=chat_body("hello"))
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"
