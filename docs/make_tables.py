"""Writes the tables of the documentation that the programs know better: flags, refused fields.

    python docs/make_tables.py

What lies between the two comments of a page is made here. A test fails when it is out of date.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from golem_core.settings import Setting, Table
from golem_server import bench, inspect
from golem_server.config import ACTIONS, OTHER_VARIABLES, ServerSettings
from golem_server.llama_flags import NONE, SAME
from golem_server.schema import LATER
from golem_server.terminal import ACTIONS as CLI_ACTIONS
from golem_server.terminal import CliSettings

HERE = Path(__file__).parent
BEGIN, END = "<!-- made by docs/make_tables.py -->", "<!-- until here -->"


def flags() -> Iterator[str]:
    """The server's settings, verbs, and the variables that are no settings."""
    yield from _settings(Table("server", ServerSettings), ACTIONS)
    yield "| variable that is no setting | meaning |"
    yield "|---|---|"
    for name, text in OTHER_VARIABLES.items():
        yield f"| `{name}` | {text} |"


def _settings(table: Table, verbs: Mapping[str, str]) -> Iterator[str]:
    yield "| flag | default | meaning |"
    yield "|---|---|---|"
    for setting in table.settings:
        yield _row(setting)
    for name, text in verbs.items():
        yield f"| `-{name}` | | {text} |"
    yield ""


def _row(s: Setting) -> str:
    value = s.detail.placeholder or s.kind.placeholder
    default = "" if s.default in (None, "", False, ()) else f"`{s.kind.show(s.default)}`"
    text = s.detail.help
    if s.detail.choices:
        text += f": {s.detail.chosen_from}"
    return f"| `{f'-{s.flag} {value}'.rstrip()}` | {default} | {text} |"


def refused() -> Iterator[str]:
    """Fields of requests that are known and not served, with the values that ask for nothing."""
    for name, harmless in LATER.items():
        values = " or ".join(f"`{json.dumps(value)}`" for value in harmless)
        yield f"- `{name}`" + (f": {values}" if values else "")


def commands() -> Iterator[str]:
    """The flags of golem-cli, golem-bench and golem-inspect, and llama-server's by golem's."""
    yield "## golem-cli"
    yield ""
    yield from _settings(Table("cli", CliSettings), CLI_ACTIONS)
    for program, parser in (
        ("golem-bench", bench.command.parser()),
        ("golem-inspect", inspect.parser()),
    ):
        yield f"## {program}"
        yield ""
        yield "| flag | meaning |"
        yield "|---|---|"
        for names, value, text in parser.described():
            told = ", ".join(f"`{name}`" for name in names) or f"`{value}`"
            yield f"| {told} {value if names else ''} | {text} |".replace("  ", " ")
        yield ""
    yield "## Coming from llama-server"
    yield ""
    yield "golem takes its own names only; one of llama-server's is refused with the one to write."
    yield ""
    yield "| llama-server | golem |"
    yield "|---|---|"
    server = {setting.flag for setting in Table("server", ServerSettings).settings}
    for flag, names in SAME.items():
        whose = "" if flag.partition(" ")[0] in server else " of golem-cli"
        yield f"| {_listed(names)} | `-{flag}`{whose} |"
    for why, names in NONE.items():
        yield f"| {_listed(names)} | {why} |"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`-{name}`" for name in names)


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "operators.md": flags,
    "api.md": refused,
    "commands.md": commands,
}


def document(page: str) -> str:
    """The text of a page with its table as it should be."""
    head, _, rest = (HERE / page).read_text("utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    return "\n".join([head + BEGIN, "", *PAGES[page](), "", END + tail])


if __name__ == "__main__":
    for name in PAGES:
        (HERE / name).write_text(document(name), "utf-8")
