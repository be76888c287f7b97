"""The shipped gunicorn settings refuse what would break the engine, before anything is loaded."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from gunicorn.util import load_class
from gunicorn.workers.gthread import ThreadWorker

from golem_server.gunicorn_worker import start_threads
from tests.server.conftest import COMMANDS, PATIENCE, ROOT, SETTINGS


def gunicorn(*flags, app=COMMANDS["gunicorn"][-1], **settings):
    """``(status, stderr)`` of a gunicorn that ends by itself."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("GOLEM_")}
    done = subprocess.run(
        [sys.executable, "-m", "gunicorn", "-c", "python:golem_server.gunicorn_conf", *flags, app],
        cwd=ROOT,
        env=environ | SETTINGS | settings | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return done.returncode, done.stderr


def test_two_workers_are_two_engines_and_refused():
    status, log = gunicorn("-w", "2")
    assert status != 0
    assert "gunicorn must run with workers=1 (2 set)" in log


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"GOLEM_PARALEL": "2"}, "there is no setting GOLEM_PARALEL; did you mean GOLEM_PARALLEL?"),
        ({"GOLEM_MODEL": ""}, "no model: pass -model"),
        ({"GOLEM_ADDR": "here"}, '-addr "here" is not an address'),
    ],
)
def test_a_wrong_setting_is_one_line(settings, message):
    status, log = gunicorn(**settings)
    assert status != 0
    assert log.startswith(f"golem-server: {message}")
    assert log.count("\n") == 1


@pytest.mark.parametrize("contents", [None, b"", b"GGUF\3\0\0\0", b"no model at all " * 100])
def test_a_model_that_cannot_be_opened_is_one_line_and_status_1(tmp_path, contents):
    path = tmp_path / "bad.gguf"
    if contents is not None:
        path.write_bytes(contents)
    status, log = gunicorn(app=COMMANDS["golem-gunicorn"][-1], GOLEM_MODEL=str(path))
    assert status == 1
    assert log.startswith(f"golem-server: {path}: ")
    assert log.count("\n") == 1


def test_every_thread_of_the_pool_is_there_before_it_is_needed():
    with ThreadPoolExecutor(7) as pool:
        start_threads(pool, 7)
        assert len(pool._threads) == 7


def test_the_settings_follow_golems(monkeypatch):
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("GOLEM_TEST_DATA", raising=False)
    sys.modules.pop("golem_server.gunicorn_conf", None)
    from golem_server import gunicorn_conf as conf

    assert conf.threads == 2 + 2 + 16
    assert (conf.workers, conf.preload_app) == (1, False)
    assert issubclass(load_class(conf.worker_class), ThreadWorker)
    assert conf.bind == "127.0.0.1:0"
    assert conf.graceful_timeout > 20  # the drain, and closing what is kept alive
