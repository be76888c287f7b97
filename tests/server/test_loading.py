"""What a person at a terminal sees while a model is loaded."""

import io
import re
import sys

import pytest

from golem_core.plugins import load_plugins
from golem_server import config, terminal
from golem_server.loading import ERASE, WIDTH, LoadingBar
from golem_server.service import Service
from tests.plugins import tiny


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_the_bar_grows_with_what_is_loaded_and_goes_at_the_end():
    screen = Screen()
    with LoadingBar(screen) as bar:
        for part in (0.0, 0.5, 0.5, 1.0):
            bar(part)
        shown = screen.getvalue().split("\r")[1:]
    assert [text.count("#") for text in shown] == [0, WIDTH // 2, WIDTH]
    assert [int(re.search(r"(\d+) %$", text)[1]) for text in shown] == [0, 50, 100]
    assert screen.getvalue().endswith(shown[-1] + ERASE)


def test_the_bar_goes_where_loading_fails():
    screen = Screen()
    with pytest.raises(ValueError, match="torn"), LoadingBar(screen) as bar:
        bar(0.3)
        raise ValueError("torn")
    assert screen.getvalue().endswith(ERASE)


def test_a_file_or_pipe_gets_no_bar():
    stream = io.StringIO()
    with LoadingBar(stream) as bar:
        bar(0.5)
    assert stream.getvalue() == ""


def test_the_server_shows_its_start(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    plugins, path = load_plugins(), tiny.write(tmp_path / "m.gguf", "llama")
    service = Service(config.load(["-model", str(path)], plugins, {}).settings, plugins)
    service.load()
    service.close()
    assert "100 %" in screen.getvalue()
    assert screen.getvalue().endswith(ERASE)


def test_golem_cli_shows_it_too(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    path = tiny.write(tmp_path / "m.gguf", "llama")
    assert terminal.main(["-model", str(path), "-p", "one", "-n", "1"]) == 0
    assert "100 %" in screen.getvalue().split(ERASE)[0]
