"""llama-server's flags are refused with golem's name for the same, which exists."""

import pytest

from golem_core.settings import SettingsError, Table
from golem_server import config, terminal
from golem_server.llama_flags import NONE, SAME, hints
from tests.core.test_plugins import loaded

SERVER = {s.flag for s in Table("server", config.ServerSettings).settings}
CLI = {s.flag for s in Table("cli", terminal.CliSettings).settings}


def by_server(*arguments: str) -> str:
    with pytest.raises(SettingsError) as refusal:
        config.load(arguments, loaded(), {})
    return str(refusal.value)


def by_cli(*arguments: str) -> str:
    with pytest.raises(SettingsError) as refusal:
        terminal.run(arguments, {})
    return str(refusal.value)


@pytest.mark.parametrize(
    ("flag", "golem"),
    [
        ("-m", "-model"),
        ("-c", "-context"),
        ("-np", "-parallel"),
        ("-t", "-threads"),
        ("--port", "-addr HOST:PORT"),
        ("--host", "-addr HOST:PORT"),
        ("-ctk", "-cache-type-k"),
        ("-ctv", "-cache-type-v"),
        ("-b", "-pass-width"),
        ("-ub", "-pass-width"),
        ("--ctx-size=4096", "-context"),
    ],
)
def test_the_server_names_its_own_flag(flag, golem):
    name = flag.lstrip("-").partition("=")[0]
    assert (
        by_server(flag, "1") == f"there is no flag -{name}; llama-server's -{name} is {golem} here"
    )


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("-ngl", "not needed here: golem computes on the processor"),
        ("-fa", "not needed here: attention "),
        ("--jinja", "not needed here: the file's own template "),
        ("-hf", "not here: golem downloads nothing; "),
        ("--temp", "no flag here: a request "),
    ],
)
def test_what_needs_no_flag_is_told_with_the_reason(flag, why):
    assert by_server(flag, "1").startswith(f"there is no flag -{flag.lstrip('-')}; {why}")


def test_each_command_names_what_it_has_itself():
    assert by_cli("-m", "x") == "there is no flag -m; llama-server's -m is -model here"
    assert by_cli("-s", "7") == "there is no flag -s; llama-server's -s is -seed here"
    assert by_cli("-np", "2") == "there is no flag -np; -help lists what exists"
    assert by_server("-s", "7").startswith("there is no flag -s; no flag here: a request ")
    assert by_server("-modle", "x") == "there is no flag -modle; did you mean -model?"


def test_the_table_names_flags_that_exist_and_hides_none():
    assert {flag.partition(" ")[0] for flag in SAME} <= SERVER | CLI
    names = [name for group in (*SAME.values(), *NONE.values()) for name in group]
    assert {name for name in names if names.count(name) > 1} == {"s"}  # the two commands differ
    for flags in (SERVER, CLI):
        assert not flags & hints(flags).keys()
    assert not SERVER & {name for group in SAME.values() for name in group}
