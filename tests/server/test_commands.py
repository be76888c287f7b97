"""The commands as they are installed and as modules, and how an interrupt ends them."""

import importlib
import os
import subprocess
import sys
import tomllib
from types import SimpleNamespace

import pytest

import golem_core
from golem_server import cli, commands, terminal
from golem_server.commands import CUT
from golem_server.version import VERSION
from tests.server.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def interrupt(*arguments, **named):
    raise KeyboardInterrupt


@pytest.mark.parametrize("flag", ["-help", "--help", "-h"])
@pytest.mark.parametrize("name", sorted(PROJECT["scripts"]))
def test_every_installed_command_helps(name, flag, monkeypatch, capsys):
    module, _, function = PROJECT["scripts"][name].partition(":")
    monkeypatch.setattr(sys, "argv", [name, flag])
    try:
        status = getattr(importlib.import_module(module), function)()
    except SystemExit as end:
        status = end.code
    assert not status
    assert capsys.readouterr().out.startswith(f"usage: {name} ")


@pytest.mark.parametrize(
    ("module", "name"),
    [("golem_server.cli", "golem-server"), ("golem_server.terminal", "golem-cli")],
)
def test_a_module_runs_as_its_command(module, name):
    environ = {k: v for k, v in os.environ.items() if not k.startswith("GOLEM_")}
    command = [sys.executable, "-m", module, "-version"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{name} {VERSION}\n", "")


MODULES = {
    "golem-server": "golem_server.cli",
    "golem-cli": "golem_server.terminal",
    "golem-bench": "golem_server.bench",
    "golem-inspect": "golem_server.inspect",
    "golem-models": "golem_server.pinning",
}


def into(output, module):
    """``(status, stderr)`` of a command's help, written there."""
    command = [sys.executable, "-m", module, "-help"]
    done = subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize("name", MODULES)
def test_what_cannot_be_written_is_one_line_and_status_1(name):
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    with open("/dev/full", "w") as full:
        status, error = into(full, MODULES[name])
    assert (status, error.count("\n")) == (1, 1)
    assert error.startswith(f"{name}: ") and error.endswith("No space left on device\n")


@pytest.mark.parametrize("name", MODULES)
def test_a_reader_that_has_gone_ends_a_command_without_a_word(name):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as nobody:
        assert into(nobody, MODULES[name]) == (CUT, "")


@pytest.mark.parametrize("name", MODULES)
def test_a_wrong_flag_is_one_line_and_status_1(name):
    command = [sys.executable, "-m", MODULES[name], "-zork", "-m", "x"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"{name}: ")
    assert done.stderr.endswith("-help lists what exists\n")


@pytest.mark.parametrize("name", MODULES)
def test_a_closed_standard_output_is_no_error(name):
    command = f'exec "{sys.executable}" -m {MODULES[name]} -help >&-'
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["server", "cli", "bench", "inspect"])
def test_an_interrupt_while_a_command_is_imported_is_status_130(command, monkeypatch):
    monkeypatch.setattr(importlib, "import_module", interrupt)
    assert getattr(commands, command)() == 130


def test_an_interrupt_before_the_server_serves_is_status_130(monkeypatch, capsys):
    monkeypatch.setattr(cli, "load_plugins", interrupt)
    assert cli.main([]) == 130
    assert capsys.readouterr() == ("", "")


def test_an_interrupt_while_golem_cli_loads_is_status_130(monkeypatch, capsys):
    monkeypatch.setattr(golem_core, "open", interrupt, raising=False)
    assert terminal.main(["-model", "m.gguf", "-p", "hi"]) == 130
    assert capsys.readouterr() == ("", "")


def test_an_interrupt_of_the_one_answer_is_status_130(monkeypatch, capsys):
    class Generation:
        result = SimpleNamespace(text="so f", finish_reason="cancelled")

        def __iter__(self):
            yield SimpleNamespace(piece="so f")
            raise KeyboardInterrupt

        def close(self):
            pass

    class Session:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def chat(self, messages, **named):
            return Generation()

    monkeypatch.setattr(golem_core, "open", lambda *a, **k: Session(), raising=False)
    assert terminal.main(["-model", "m.gguf", "-p", "hi"]) == 130
    assert capsys.readouterr() == ("so f\n", "")


def test_an_interrupt_at_the_prompt_leaves_golem_cli(monkeypatch, capsys):
    class Session:
        closed = False

        def __enter__(self):
            return self

        def __exit__(self, *_):
            Session.closed = True

    monkeypatch.setattr(golem_core, "open", lambda *a, **k: Session(), raising=False)
    monkeypatch.setattr(terminal, "converse", interrupt)
    assert terminal.main(["-model", "m.gguf"]) == 130
    assert Session.closed
