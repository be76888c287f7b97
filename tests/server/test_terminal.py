"""golem-cli on the scripted model."""

import io
import os

import pytest

import golem_core
from golem_core.api import Session
from golem_server import terminal
from golem_server.version import VERSION
from tests.server.fake import FakeModel


@pytest.fixture
def cli(monkeypatch, capsys):
    """Runs golem-cli; gives ``(status, stdout, stderr)``."""
    opened = []

    def fake_open(path, *, context, threads):
        opened.append((path, context, threads))
        return Session(FakeModel(path, 1, context))

    monkeypatch.setattr(golem_core, "open", fake_open, raising=False)
    for name in list(os.environ):
        if name.startswith("GOLEM_"):
            monkeypatch.delenv(name)

    def run(*arguments, stdin=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        status = terminal.main(arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    run.opened = opened
    return run


def test_one_answer(cli):
    status, out, err = cli("-model", "m.gguf", "-p", "hello", "-context", "256", "-threads", "3")
    assert (status, out, err) == (0, "you said: hello\n", "")
    assert [str(cli.opened[0][0]), *cli.opened[0][1:]] == ["m.gguf", 256, 3]


def test_a_conversation_until_the_end_of_the_file(cli):
    status, out, err = cli("-model", "m", stdin="hello\n\n/reset\nsay two\n")
    assert (status, out) == (0, "you said: hello\ntwo\n")
    assert err == (
        "Type a message. /reset forgets the conversation, /help tells more, end of file leaves.\n"
        "> > > (forgotten)\n> > "
    )


def test_words_that_begin_with_a_slash_are_commands(cli):
    status, out, err = cli("-model", "m", stdin="/rest now\n/help\n /etc what?\n/exit\nhello\n")
    assert (status, out) == (0, "you said: /etc what?\n")
    assert "> there is no command /rest; /help tells which there are\n> " in err
    assert "> /reset   forgets the conversation\n" in err
    assert err.endswith("with a space before it.\n> > ")


def test_stats_tell_the_model_the_sampling_and_each_answer(cli):
    _, _, err = cli("-model", "m", "-stats", "-temp", "0.5", "-seed", "7", "-n", "3", "-p", "hello")
    first, second, third = err.splitlines()
    assert first.startswith("m: fake, 2 blocks, 4096 positions, vocabulary 260, all on cpu, loaded")
    assert second == "sampling: temperature 0.5, top-k 40, top-p 0.95, seed 7"
    prompt = "<user>hello\n<assistant>"
    assert third.startswith(f"{len(prompt)} prompt tokens in ")
    assert " 3 generated in " in third
    assert third.endswith(", cut short")


def test_only_what_was_added_is_read_again(cli):
    _, _, err = cli("-model", "m", "-stats", stdin="say one\nsay two\n")
    counts = [
        int(line.split()[0].strip("> ")) for line in err.split("> ") if "prompt tokens" in line
    ]
    first = len("<user>say one\n<assistant>")
    # The end of the first answer is not kept, so its newline is the first thing that is new.
    assert counts == [first, len("\n<user>say two\n<assistant>")]


def test_the_system_message_comes_first_and_survives_a_reset(cli):
    _, _, err = cli("-model", "m", "-system", "be brief", "-stats", stdin="/reset\nsay one\n")
    prompt = "<system>be brief\n<user>say one\n<assistant>"
    assert f"> (forgotten)\n> {len(prompt)} prompt tokens" in err


def test_a_message_that_does_not_fit_is_refused_and_forgotten(cli):
    status, out, err = cli("-model", "m", "-context", "64", stdin="x" * 99 + "\nhello\n")
    assert (status, out) == (0, "you said: hello\n")
    assert "exceeds the available context size (64 tokens)" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no model: pass -model, or set GOLEM_MODEL"),
        (["-model", "m", "-think"], "there is no flag -think; -help lists what exists"),
        (["-model", "m", "-n", "-2"], "-n: -2 is out of range, it may be at least -1"),
        (
            ["-model", "m", "-n", "99999999999999999999"],
            "-n: 99999999999999999999 is out of range, it may be from -1 to 2147483647",
        ),
        (
            ["-model", "m", "-temperature", "1"],
            "there is no flag -temperature; did you mean -temp?",
        ),
        (["-model", "m", "-temp", "nan"], '-temp: "nan" is not a number'),
        (["-model", ""], '-model: "" is not a path'),
        (["-help=x"], "-help takes no value: write -help alone"),
    ],
)
def test_a_wrong_flag_is_one_line(cli, arguments, message):
    assert cli(*arguments) == (1, "", f"golem-cli: {message}\n")


def test_the_servers_variables_are_left_alone(cli, monkeypatch):
    monkeypatch.setenv("GOLEM_MODEL", "named.gguf")
    monkeypatch.setenv("GOLEM_PARALLEL", "8")
    monkeypatch.setenv("GOLEM_N", "-5")
    assert cli("-p", "hello")[:2] == (0, "you said: hello\n")
    assert str(cli.opened[0][0]) == "named.gguf"


def test_version_and_help(cli):
    assert cli("-version")[1] == f"golem-cli {VERSION}\n"
    assert "usage: golem-cli [options]" in cli("-help")[1]


def test_an_interrupt_ends_the_answer_and_keeps_what_was_said():
    settings = terminal.CliSettings(n=-1)
    with Session(FakeModel("m", 1, 256)) as session:
        talk = terminal.Conversation(session, settings)
        real = session.chat

        def interrupted(*arguments, **named):
            generation = real(*arguments, **named)
            steps = iter(generation)

            class Interrupted:
                result = property(lambda self: generation.result)

                def close(self):
                    generation.close()
                    session.model.executor.allow(None)

                def __iter__(self):
                    yield next(steps)
                    raise KeyboardInterrupt

            return Interrupted()

        session.chat = interrupted
        session.model.executor.allow(1)  # the rest waits until the answer was given up
        result = talk.turn("forever")
        assert result.finish_reason == "cancelled"
        assert talk.messages[-1] == {"role": "assistant", "content": result.text}
        assert not any(slot.is_processing for slot in session.engine.slots)
