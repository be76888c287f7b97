"""``golem-cli``: a conversation with a model in a terminal, or one answer with ``-p``.

The conversation is rendered whole for every turn; what the slot still holds of it is not read
again. Everything but the answers goes to stderr.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import golem_core
from golem_core.api import Session
from golem_core.cpu.cores import shown_threads
from golem_core.media import MediaError
from golem_core.parts import no_way
from golem_core.sample import ParamError, SamplerParams
from golem_core.schedule import Result, ScheduleError
from golem_core.schedule.durations import go_duration
from golem_core.settings import (
    SettingsError,
    Table,
    help_text,
    parse_flags,
    resolve,
    setting,
)
from golem_core.text.template import TemplateError
from golem_server import commands
from golem_server.commands import INTERRUPTED
from golem_server.llama_flags import hints
from golem_server.loading import LoadingBar
from golem_server.serve import one_line
from golem_server.stderr import say
from golem_server.version import VERSION

PROGRAM = "golem-cli"
ACTIONS = {
    "help": "print this text and leave",
    "version": "print the version and leave",
}
REFUSALS = (ParamError, TemplateError, ScheduleError, MediaError)
WELCOME = "Type a message. /reset forgets the conversation, /help tells more, end of file leaves."
HELP = """/reset        forgets the conversation
/image FILE   shows a picture with the next message
/audio FILE   plays a recording with the next message
/help         prints this text
/exit         leaves, as end of file does
Ctrl-C ends an answer. A message that begins with a slash is sent with a space before it."""


@dataclass(frozen=True)
class CliSettings:
    """The settings of ``golem-cli``."""

    model: Path | None = setting(None, "GGUF file of a chat model")
    context: int = setting(
        4096, "positions kept; 0 = what the model was trained for", low=0, environment=False
    )
    system: str = setting("", "what the model is told before the conversation", environment=False)
    n: int = setting(
        512, "most tokens of an answer; -1 = fill the context", low=-1, environment=False
    )
    temp: float = setting(-1.0, "temperature; negative = the file's", environment=False)
    top_k: int = setting(-1, "draw among the best K; negative = the file's", environment=False)
    top_p: float = setting(-1.0, "nucleus; negative = the file's", environment=False)
    seed: int = setting(
        0, "of the draws; 0 = a random one", low=0, high=0xFFFFFFFE, environment=False
    )
    p: str = setting("", "answer this and leave", environment=False)
    mmproj: Path | None = setting(None, "GGUF file of the projector that sees or hears for it")
    image: tuple[Path, ...] = setting(
        (), "a picture for the first message; may be given again", environment=False, in_file=False
    )
    audio: tuple[Path, ...] = setting(
        (), "a recording for the first message, likewise", environment=False, in_file=False
    )
    stats: bool = setting(False, "say what was read and drawn, and how fast", environment=False)
    threads: int = setting(0, "cores to compute on; 0 = the physical ones", low=0)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    try:
        return run(sys.argv[1:] if argv is None else argv, os.environ)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except (ValueError, OSError, ScheduleError) as error:
        say(f"{PROGRAM}: {one_line(error)}")
        return 1


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Do what the arguments say.

    Raises:
        SettingsError, FormatError, OSError: for what cannot be used.
    """
    table = Table("cli", CliSettings)
    flags = hints(s.flag for s in table.settings)
    given = parse_flags(table.settings, arguments, ACTIONS, flags)
    if "help" in given.actions:
        print(help_text(PROGRAM, [table], ACTIONS, {}))
        return 0
    if "version" in given.actions:
        print(f"{PROGRAM} {VERSION}")
        return 0
    # The environment is the server's; a variable that only it knows is no mistake here.
    known = {s.variable for s in table.settings}
    own = {name: value for name, value in environ.items() if name in known}
    settings: CliSettings = resolve([table], given=given, environ=own)["cli"]
    if settings.model is None:
        raise SettingsError("no model: pass -model, or set GOLEM_MODEL")
    more = {"mmproj": settings.mmproj} if settings.mmproj else {}
    with LoadingBar() as bar:
        opened = golem_core.open(
            settings.model,
            context=settings.context,
            threads=settings.threads or None,
            progress=bar,
            **more,
        )
    with opened as session:
        talk = Conversation(session, settings)
        for kind in ("image", "audio"):
            for path in getattr(settings, kind):
                talk.attach(kind, path, f"-{kind}")
        if settings.stats:
            talk.introduce()
        if "p" in given.values:
            if talk.turn(settings.p).finish_reason == "cancelled":
                return INTERRUPTED
        else:
            converse(talk, sys.stdin)
    return 0


def converse(talk: "Conversation", lines: TextIO) -> None:
    """Answer every line until there are no more."""
    say(WELCOME)
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = lines.readline()
        if not line:
            return
        text = line.strip()
        if line.startswith("/") and text == "/exit":
            return
        try:
            if line.startswith("/"):
                command(talk, text)
            elif text:
                talk.turn(text)
        except BrokenPipeError:
            raise
        except KeyboardInterrupt:  # while its pictures were looked at
            say("(given up)")
        except (*REFUSALS, OSError) as error:
            say(one_line(error))


def command(talk: "Conversation", text: str) -> None:
    """Do what a line with a slash before it says.

    Raises:
        MediaError, OSError: for a medium that cannot be taken.
    """
    name, _, rest = text.partition(" ")
    match name, rest.strip():
        case "/reset", "":
            talk.reset()
            say("(forgotten)")
        case "/help", "":
            say(HELP)
        case "/image" | "/audio", "":
            say(f"{name} needs the name of a file")
        case "/image" | "/audio", path:
            talk.attach(name[1:], Path(path).expanduser(), name)
        case _:
            say(f"there is no command {name}; /help tells which there are")


class Conversation:
    """A growing list of messages, and the session that answers."""

    def __init__(self, session: Session, settings: CliSettings):
        self.session = session
        self.settings = settings
        asked = {
            "temperature": settings.temp,
            "top_k": settings.top_k,
            "top_p": settings.top_p,
            "seed": settings.seed or -1,
        }
        self.sampling = {name: value for name, value in asked.items() if value >= 0}
        self.messages: list[dict[str, Any]] = []
        self.pending: list[dict[str, Any]] = []  # parts of the next message
        self.reset()

    def reset(self) -> None:
        """Forget everything but the system message, and what waits for the next one."""
        self.pending = []
        system = self.settings.system
        self.messages = [{"role": "system", "content": system}] if system else []

    def attach(self, kind: str, path: Path, asked: str) -> None:
        """Keep the bytes of a picture or a recording for the next message.

        kind: "image" or "audio". asked: the flag or command, for messages about it.

        Raises:
            MediaError: when the model cannot take such a thing.
            OSError: when the file cannot be read.
        """
        projector = self.session.model.projector
        if projector is None or kind not in projector.kinds:
            raise MediaError(f"{asked} needs -mmproj: {no_way(kind, projector)}")
        self.pending.append({"type": kind, kind: path.read_bytes()})

    def introduce(self) -> None:
        """Say what is loaded and how it draws."""
        model = self.session.model
        params = SamplerParams.resolve(model.sampling, self.sampling)
        say(
            f"{model.path.name}: {model.architecture}, {model.blocks} blocks, "
            f"{self.session.context} positions, vocabulary {model.n_vocab}, all on cpu, "
            f"loaded in {go_duration(model.seconds, 0.001)} on "
            f"{shown_threads(model.executor.threads)}"
        )
        say(
            f"sampling: temperature {params.temperature:g}, top-k {params.top_k}, "
            f"top-p {params.top_p:g}, seed {self.settings.seed or 'random'}"
        )

    def turn(self, text: str) -> Result:
        """Answer a message on stdout; an interrupt ends the answer and keeps what was said.

        Raises:
            ParamError, TemplateError, ScheduleError, MediaError, and KeyboardInterrupt before there
                is an answer: the message is taken back then, with its pictures and recordings.
        """
        parts, self.pending = self.pending, []
        # The original's order: pictures, recordings, text.
        parts.sort(key=lambda part: part["type"] != "image")
        content = [*parts, {"type": "text", "text": text}] if parts else text
        self.messages.append({"role": "user", "content": content})
        try:
            answer = self.session.chat(self.messages, max_tokens=self.settings.n, **self.sampling)
            try:
                for step in answer:
                    print(step.piece, end="", flush=True)
            except KeyboardInterrupt:
                answer.close()
            print(flush=True)
            result = answer.result
        except (KeyboardInterrupt, *REFUSALS):
            self.messages.pop()
            raise
        self.messages.append({"role": "assistant", "content": result.text})
        if self.settings.stats:
            say(stats_line(result))
        return result


def stats_line(result: Result) -> str:
    """What ``-stats`` says after an answer."""
    read_s, drawn_s = result.prompt_ms / 1000, result.draw_ms / 1000
    fed, drawn = result.fed_tokens, result.drawn_tokens
    return (
        f"{fed} prompt tokens in {go_duration(read_s, 0.001)} "
        f"({fed / read_s if read_s else 0:.1f}/s), "
        f"{drawn} generated in {go_duration(drawn_s, 0.001)} "
        f"({drawn / drawn_s if drawn_s else 0:.2f}/s)"
        + ("" if result.finish_reason == "stop" else ", cut short")
    )


if __name__ == "__main__":
    sys.exit(commands.run("golem_server.terminal", PROGRAM))
