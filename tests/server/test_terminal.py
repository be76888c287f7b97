"""golem-cli on the scripted model."""

import io
import os
import re

import pytest

import golem_core
from golem_core.api import Session
from golem_server import terminal
from golem_server.version import VERSION
from tests.plugins import tiny
from tests.plugins.projectors import picture, recording, write_projector, write_seeing_model
from tests.server.fake import FakeModel


@pytest.fixture
def cli(monkeypatch, capsys):
    """Runs golem-cli; gives ``(status, stdout, stderr)``."""
    opened = []

    def fake_open(path, *, context, threads, progress):  # and no mmproj where none was named
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
    assert "> /reset        forgets the conversation\n" in err
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


def test_an_interrupt_before_there_is_an_answer_takes_the_message_back(monkeypatch, capsys):
    """As while a picture is looked at; the conversation goes on."""
    with Session(FakeModel("m", 1, 256)) as session:
        talk = terminal.Conversation(session, terminal.CliSettings(n=4))
        real, looks = session.chat, []

        def chat(*arguments, **named):
            looks.append(1)
            if len(looks) == 1:
                raise KeyboardInterrupt
            return real(*arguments, **named)

        monkeypatch.setattr(session, "chat", chat)
        terminal.converse(talk, io.StringIO("look\nhello\n"))
        assert [m["role"] for m in talk.messages] == ["user", "assistant"]
        assert talk.messages[0]["content"] == "hello"
        assert "(given up)" in capsys.readouterr().err


# ---- pictures and sound


@pytest.fixture(scope="module")
def seeing(tmp_path_factory):
    """A folder with a model that sees and hears, a picture and a recording."""
    folder = tmp_path_factory.mktemp("seeing")
    plain = tiny.write(folder / "plain.gguf", "gemma4-e2b", "F32")
    write_seeing_model(folder / "model.gguf", plain)
    write_projector(folder / "mmproj.gguf", 256)
    write_projector(folder / "deaf.gguf", 256, "std")
    (folder / "a, cat.png").write_bytes(picture(1))
    (folder / "dog.png").write_bytes(picture(2))
    (folder / "words.wav").write_bytes(recording(1))
    (folder / "not.png").write_text("no picture")
    return folder


@pytest.fixture
def talk(seeing, monkeypatch, capsys):
    """Runs golem-cli on that model, in its folder; gives ``(status, stdout, stderr)``."""
    monkeypatch.chdir(seeing)

    def run(*arguments, stdin="", mmproj="mmproj.gguf"):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        more = ["-mmproj", mmproj] if mmproj else []
        settings = ["-model", "model.gguf", "-temp", "0", "-n", "4", "-context", "2048", "-stats"]
        status = terminal.main([*settings, *more, "-threads", "1", *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def read_counts(err):
    """Tokens read for each answer."""
    return [int(n) for n in re.findall(r"(\d+) prompt tokens in", err)]


def test_pictures_and_recordings_go_with_the_message(talk, seeing):
    alone = talk("-p", "what?")
    media = ("-image", "a, cat.png", "-image", "dog.png", "-audio", "words.wav")
    status, out, err = talk(*media, "-p", "what?")
    assert (status, alone[0]) == (0, 0)
    with golem_core.open("model.gguf", context=2048, mmproj="mmproj.gguf") as session:
        rows = [session.engine.rows("image", picture(seed)) for seed in (1, 2)]
        rows.append(session.engine.rows("audio", recording(1)))
        asked = [{"type": "image", "image": picture(seed)} for seed in (1, 2)]
        asked += [{"type": "audio", "audio": recording(1)}, {"type": "text", "text": "what?"}]
        said = session.chat([{"role": "user", "content": asked}], temperature=0, max_tokens=4).text
    marks = 2
    assert read_counts(err)[0] == read_counts(alone[2])[0] + sum(len(r) + marks for r in rows)
    assert out == said + "\n"


def test_media_are_attached_between_messages_and_stay_in_the_conversation(talk):
    lines = "/image dog.png\nwhat?\nand now?\n/audio words.wav\nheard?\n"
    status, _, err = talk(stdin=lines)
    first, second, third = read_counts(err)
    assert status == 0
    assert first > 70  # rows of the picture; a small one is enlarged to as many
    assert second < 70  # the picture is not read again
    assert 15 < third < 70  # 0.6 s are 15 rows


def test_a_medium_that_cannot_be_taken_is_one_line_and_the_conversation_goes_on(talk):
    lines = "/image gone.png\n/image\n/image not.png\nwhat?\nhello\n"
    status, _, err = talk(stdin=lines)
    assert status == 0
    assert "gone.png" in err
    assert "/image needs the name of a file" in err
    assert "messages[0], part 0: not a picture of a known kind" in err
    assert len(read_counts(err)) == 1  # hello, without the picture


@pytest.mark.parametrize(
    ("flag", "mmproj", "reason"),
    [
        (
            "image",
            "",
            "-image needs -mmproj: the model was opened without a projector that can see",
        ),
        ("audio", "deaf.gguf", "-audio needs -mmproj: deaf.gguf is a projector that cannot hear"),
    ],
)
def test_without_eyes_or_ears_the_flag_is_refused_by_name(talk, flag, mmproj, reason):
    status, out, err = talk(f"-{flag}", "dog.png", "-p", "what?", mmproj=mmproj)
    assert (status, out) == (1, "")
    assert f"golem-cli: {reason}" in err
