"""Bad arguments of what measures: one line that says what is possible, and nothing is done."""

import importlib
import pkgutil
import sys

import pytest

import benchmarks
from golem_server.commands import Flags

SCRIPTS = [
    name
    for _, name, _ in pkgutil.iter_modules(benchmarks.__path__)
    if hasattr(importlib.import_module(f"benchmarks.{name}"), "main")
]
NEEDED = {  # arguments that must be there, as good as this
    "embed": ["--peer", "/"],
    "grammar": [__file__],
    "laya": ["/nowhere", "--python", sys.executable],
    "load": ["qwen3-0.6b:q4_0"],
}
ZERO = {"--width", "--checkpoints", "--threads", "--seed"}  # where 0 stands for a choice, or is one


class Seen(Exception):
    """Carries the parser out of a script before anything is done."""


def parser_of(name, monkeypatch):
    def parse_args(parser, *_):
        raise Seen(parser)

    with monkeypatch.context() as patch:
        patch.setattr(Flags, "parse_args", parse_args)
        with pytest.raises(Seen) as seen:
            importlib.import_module(f"benchmarks.{name}").main()
    return seen.value.args[0]


def refusal(name, argv, monkeypatch, capsys):
    """What a script says of its arguments; it must leave with it, by itself."""
    monkeypatch.setattr(sys, "argv", [name, *argv])
    with pytest.raises(SystemExit) as left:
        importlib.import_module(f"benchmarks.{name}").main()
    said = capsys.readouterr().err or f"{left.value.code}\n"
    assert left.value.code not in (0, None)
    assert said.count("\n") == 1 and said.startswith(f"{name}: "), said
    return said


def test_every_script_is_looked_at():
    assert len(SCRIPTS) >= 17 and {"linear", "soak", "villagers"} <= set(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_number_is_taken_unread(name, monkeypatch, capsys):
    """Every option with a kind of its own refuses a text, a number below zero and an empty list."""
    parser = parser_of(name, monkeypatch)
    options = [a for a in parser._actions if a.option_strings and a.type is not None]
    checked = 0
    for action in options:
        flag = action.option_strings[-1]
        if getattr(action.type, "__name__", "") in ("Path", "folder"):  # made where it is missing
            continue
        bad = ["zz", "-1", "", "1,,2"] + ["0"] * (flag not in ZERO)
        for value in bad:
            if not value and flag in ("--types", "--own") and name == "deltanet":
                continue  # nothing of one of the two is a choice
            argv = [*NEEDED.get(name, []), f"{flag}={value}"]
            assert flag in refusal(name, argv, monkeypatch, capsys), (flag, value)
        checked += 1
    numbers = [a for a in parser._actions if a.type in (int, float)]
    assert not numbers and (checked or name == "compare"), "a number's range is not looked at"


@pytest.mark.parametrize(
    ("name", "argv", "says"),
    [
        ("linear", ["--types", "Q4_0,ZZ"], "'ZZ': there are F32"),
        ("linear", ["--isas", "foo"], "'foo': there are portable"),
        ("prompts", ["--types", "F32"], "'F32': there are Q4_0"),
        ("prompts", ["--width", "100"], "'100': it must be at least 256"),
        ("prompts", ["--width", "300"], "'300': it must be a multiple of 256"),
        ("depth", ["nosuch"], "nosuch: there are SmolLM2"),
        ("depth", ["--depths", "4096,x"], "'x' is no whole number"),
        ("depth", ["--types", "q9"], "'q9': there are f16"),
        ("depth", ["--megabytes", "99999999"], "it may be at most"),
        ("ops", ["nosuch"], "nosuch: no op's line contains that"),
        ("shares", ["--columns", "17"], "'17': it may be at most 16"),
        ("shares", ["--shape", "4096"], "it must be two sizes, such as 256x256"),
        ("bandwidth", ["--threads", "1,5000"], "5000 threads: this process may use"),
        ("fairness", ["--random", "qwen9"], "there are qwen3-0.6b"),
        ("fairness", ["-m", "/nowhere.gguf"], "'/nowhere.gguf': there is no such file"),
        ("villagers", ["--blocks", "99"], "has 1 to 32"),
        ("deltanet", ["--shape", "qwen9"], "'qwen9': there are qwen3-0.6b"),
        ("deltanet", ["--types", "q9"], "type 'Q9'"),
        ("deltanet", ["--blocks", "99"], "has 1 to 64"),
        ("soak", ["--seconds", "inf"], "'inf' is no number of seconds above 0"),
        ("embed", ["--peer", "/nowhere"], "/nowhere/"),
        ("load", ["nosuch"], "'nosuch' is no file, and "),
        ("load", ["qwen3-0.6b:q4_0", "--peer", "/nowhere"], "build the peer first"),
        ("deltanet", ["--peer", "/nowhere"], "build the peer first"),
        ("laya", ["x", "--python", "/nowhere"], "'/nowhere': there is no such program"),
        ("verify", ["/nowhere"], "'/nowhere': there is no such file"),
        ("grammar", ["/nowhere"], "'/nowhere': there is no such file"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(name, argv, says, monkeypatch, capsys):
    assert says in refusal(name, argv, monkeypatch, capsys)
