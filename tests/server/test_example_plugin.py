"""The plugin of examples/ is found, opened and served like golem's own."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from falcon.testing import TestClient

import golem_core
from golem_core.formats.gguf import GGUF
from golem_core.formats.writer import write_gguf
from golem_core.plugins import Plugins
from golem_core.settings import SettingsError
from golem_server import config
from golem_server.app import create_app
from golem_server.service import Service
from tests.plugins import tiny

EXAMPLE = Path(__file__).parents[2] / "examples" / "golem-plugin-example"


@pytest.fixture
def plugins(monkeypatch):
    """The plugins of a process where only the example is installed."""
    monkeypatch.syspath_prepend(EXAMPLE)
    import golem_plugin_example

    found = Plugins()
    found.add("words", lambda: golem_plugin_example)
    assert found.failures == []
    return found


@pytest.fixture
def client(plugins, tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("golem\ngold\nalpha\n\ngolden\n")
    settings = config.load(["-words", str(file)], plugins, {}).settings
    config.validate(settings)
    service = Service(settings, plugins)
    client = TestClient(create_app(service))
    assert client.simulate_post("/v1/words", json={"prefix": "gol"}).status_code == 503
    service.load()
    client.service = service
    yield client
    service.close()


def test_its_route_is_served_and_the_chat_routes_are_not(client):
    answer = client.simulate_post("/v1/words", json={"prefix": "gol", "limit": 2})
    assert answer.json == {"words": ["gold", "golden"]}
    assert client.simulate_post("/v1/chat/completions", json={}).status_code == 404
    assert client.simulate_get("/v1/models").json["data"][0]["id"] == "words"
    assert client.simulate_get("/health").json == {"status": "ok"}


def test_its_errors_come_in_golems_envelope(client):
    answer = client.simulate_post("/v1/words", body="nonsense")
    assert answer.status_code == 400
    assert answer.json["error"]["type"] == "invalid_request_error"
    assert 'send {"prefix": "go", "limit": 3}' in answer.json["error"]["message"]


def test_its_line_is_in_the_start_up_log(client):
    (line,) = client.service.lines
    assert line.startswith("words: 4 from ")


def test_its_flag_is_a_way_to_have_something_to_serve(plugins):
    with pytest.raises(SettingsError, match="pass -model, -models, -embed or -words, or set "):
        config.validate(config.load([], plugins, {}).settings)


def test_its_architecture_is_opened_and_draws(plugins, tmp_path):
    source = tiny.write(tmp_path / "llama.gguf", "llama")
    target = tmp_path / "parallel.gguf"
    with GGUF.open(source) as file:
        header = {
            key.replace("llama.", "parallel-llama.", key.startswith("llama.")): value
            for key, value in file.metadata.items()
        } | {"general.architecture": "parallel-llama"}
        tensors = [
            (name, tensor.shape, tensor.type, tensor.data)
            for name, tensor in file.tensors.items()
            if "ffn_norm" not in name
        ]
        write_gguf(target, header, tensors)
    with golem_core.open(target, context=128, executor="reference", plugins=plugins) as session:
        assert session.model.architecture == "parallel-llama"
        assert session.model.template_source == "builtin"
        whole = session.chat([{"role": "user", "content": "a"}], temperature=0, max_tokens=5)
        assert whole.result.drawn_tokens == 5


def test_an_installed_copy_is_found_by_its_entry_point(tmp_path):
    """What installing does, without a network: the package and its metadata on the path."""
    shutil.copytree(EXAMPLE / "golem_plugin_example", tmp_path / "golem_plugin_example")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    about = tmp_path / f"golem_plugin_example-{project['version']}.dist-info"
    about.mkdir()
    name, version = project["name"], project["version"]
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = "\n".join(f"{k} = {v}" for k, v in project["entry-points"]["golem"].items())
    (about / "entry_points.txt").write_text(f"[golem]\n{points}\n")
    script = (
        "import json; from golem_core.plugins import load_plugins; p = load_plugins(); "
        "print(json.dumps([p.names, sorted(p.architectures()), list(map(str, p.failures))]))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": f"{root}:{tmp_path}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    names, architectures, failures = json.loads(done.stdout)
    assert failures == []
    assert "words" in names
    assert {"llama", "qwen3", "gemma3", "parallel-llama"} <= set(architectures)
