"""What a service opens its chat model with."""

import pytest
from falcon.testing import TestClient

import golem_core.plugins
from golem_core.plugins import load_plugins
from golem_server import config, service
from golem_server.app import create_app
from golem_server.service import Service
from tests.plugins import tiny
from tests.server.fake import open_fake


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf", "llama")


def settings(path, *flags):
    given = ["-model", str(path), "-context", "128", *flags]
    return config.load(given, load_plugins(), {}).settings


@pytest.mark.parametrize(
    ("flags", "given"),
    [
        ([], {"mapped": True, "mlock": False, "builtin_template": False, "rope_scale": None}),
        (["-no-mmap"], {"mapped": False}),
        (["-mlock"], {"mlock": True}),
        (["-builtin-template"], {"builtin_template": True}),
        (["-rope-scaling", "yarn", "-rope-scale", "2"], {"rope_scaling": "yarn", "rope_scale": 2}),
        (["-threads", "1", "-pass-width", "32"], {"threads": 1, "pass_width": 32}),
    ],
)
def test_flags_become_what_the_model_is_opened_with(monkeypatch, flags, given):
    seen = {}
    monkeypatch.setattr(service, "open_decoder", lambda path, **rest: seen.update(rest))
    chosen = settings("m.gguf", *flags)
    service.open_chat_model(chosen["server"], load_plugins(), lambda part: None)
    assert {name: seen[name] for name in given} == given


def test_the_plugins_are_loaded_once(monkeypatch, path):
    plugins, chosen = load_plugins(), settings(path, "-threads", "1")
    monkeypatch.setattr(golem_core.plugins, "installed", lambda: pytest.fail("loaded again"))
    served = Service(chosen, plugins)
    served.load()
    assert served.engine.model.architecture == "llama"
    served.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}]}),
        ("/v1/completions", {"prompt": "hello"}),
    ],
)
def test_a_request_is_announced_while_it_is_prepared(monkeypatch, path, body):
    """So that a pass about to start may wait for it."""
    chosen = settings("fake.gguf")
    served = Service(chosen, load_plugins(), open_fake)
    application = create_app(served)
    served.load()
    engine, seen = served.engine, []
    submit, runner = engine.submit_all, engine._runner
    monkeypatch.setattr(engine, "submit_all", lambda r: seen.append(runner.entering) or submit(r))
    answer = TestClient(application).simulate_post(path, json=body)
    assert (answer.status_code, seen, runner.entering) == (200, [1], 0)
    assert TestClient(application).simulate_post(path, json={}).status_code == 400
    assert runner.entering == 0
    served.close()
