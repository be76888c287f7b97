"""The documentation: what it shows runs, what it quotes is there, what is generated is fresh."""

import json
import re
import runpy
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest
from falcon.testing import TestClient

from golem_core.model.embedder import open_embedder
from golem_core.plugins import Plugins, load_plugins
from golem_core.settings import Table
from golem_server import bench, config, inspect, pinning
from golem_server.app import create_app
from golem_server.service import Service
from golem_server.terminal import ACTIONS as CLI_ACTIONS
from golem_server.terminal import CliSettings
from tests.plugins import tiny, tiny_encoders
from tests.plugins.projectors import picture, recording, write_projector, write_seeing_model
from tests.server.fake import open_fake

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
EXAMPLE = ROOT / "examples" / "golem-plugin-example"


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a language on a page, in order."""
    text = (DOCS / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def quotes(page: str) -> list[tuple[str, str]]:
    """(file, code) of the blocks whose first line is a comment that names the file."""
    found = (re.fullmatch(r"# (\S+\.py)\n(.*)", b, re.DOTALL) for b in blocks(page, "python"))
    return [(match[1], match[2]) for match in found if match]


def programs(page: str) -> list[str]:
    """The Python blocks that are no quotes and no signatures."""
    return [b for b in blocks(page, "python") if not re.match(r"# \S+\.py\n|p\.\w+\(", b)]


# ---- what is generated ----


def test_the_catalogue_of_ops_is_that_of_the_docstrings():
    made = runpy.run_path(str(DOCS / "make_ops.py"))["document"]()
    assert (DOCS / "ops.md").read_text("utf-8") == made, "run python docs/make_ops.py"


@pytest.mark.parametrize("page", ["operators.md", "api.md", "commands.md"])
def test_the_tables_are_those_of_the_program(page):
    made = runpy.run_path(str(DOCS / "make_tables.py"))["document"](page)
    assert (DOCS / page).read_text("utf-8") == made, "run python docs/make_tables.py"


# ---- flags ----

PROGRAMS = r"(?:\S*/)?golem-(?:server|cli|bench|inspect|models|laya) "
FLAG = r"(?<![^\s`\[])--?([a-z][a-z0-9-]*)"
EXAMPLES = {"flag", "words", "words-limit"}  # of any flag, and of the plugin that is an example
OTHERS = {"c", "rtr"}  # of python and ik_llama.cpp


def flags_that_there_are() -> set[str]:
    """Of every command, without dashes."""
    plugins = [Table(name, cls, plugin=True) for name, cls in load_plugins().settings().items()]
    tables = [Table("server", config.ServerSettings), Table("cli", CliSettings), *plugins]
    flags = {s.flag for table in tables for s in table.settings}
    flags |= {*config.ACTIONS, *CLI_ACTIONS}
    for module in (bench.command, inspect, pinning):
        flags |= {name.lstrip("-") for names, *_ in module.parser().described() for name in names}
    subcommands = re.findall(r'"-([a-z]+)", "--\1"', Path(pinning.__file__).read_text("utf-8"))
    return flags | set(subcommands)


def test_every_flag_is_on_a_page():
    text = "\n".join((DOCS / page).read_text("utf-8") for page in PAGES)
    named = set(re.findall(FLAG, text))
    assert sorted(flags_that_there_are() - named) == []


@pytest.mark.parametrize("page", [*PAGES, "../README.md"])
def test_every_flag_that_a_page_names_exists(page):
    """In code that is a flag, or begins with one of the commands; llama-server's are marked so."""
    text, _, others = (DOCS / page).read_text("utf-8").partition("## Coming from llama-server")
    fences = re.findall(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.M))
    spans += re.findall(r"\| `(-[^`]+)`[\w -]*\|$", others, re.MULTILINE)
    spans += [line for fence in fences for line in fence.splitlines()]
    told = [span.partition("#")[0] for span in spans if re.match(rf"{PROGRAMS}|-", span)]
    found = {flag for span in told for flag in re.findall(FLAG, span)}
    assert sorted(found - flags_that_there_are() - EXAMPLES - OTHERS) == []


# ---- what is promised ----


def test_every_key_that_an_embedding_model_is_said_to_need_is_asked_for_by_name(tmp_path):
    text = (DOCS / "operators.md").read_text("utf-8")
    table = text.partition("### Files of BERT's family")[2].partition("\n\n`bert.pooling_type`")[0]
    keys = re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)
    assert len(keys) == 9
    whole = tiny_encoders.write(tmp_path / "whole.gguf", "bert-mean")
    open_embedder(whole, threads=1).close()
    for key in keys:
        short = tiny.rewrite(whole, tmp_path / "short.gguf", {key: None})
        with pytest.raises(ValueError, match=re.escape(key)):
            open_embedder(short, threads=1)


# ---- what is quoted ----


@pytest.mark.parametrize(("file", "code"), quotes("plugins.md"))
def test_quoted_code_is_in_its_file(file, code):
    assert code in (ROOT / file).read_text("utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings_that_exist(page):
    for target in re.findall(r"\]\(([^)]+)\)", (DOCS / page).read_text("utf-8")):
        name, _, heading = target.partition("#")
        path = (DOCS / name).resolve() if name else DOCS / page
        assert path.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
            assert heading in [title.lower().replace(" ", "-") for title in titles], target


# ---- what runs ----


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with the files that the pages name."""
    model = tiny.write(tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf", "llama")
    (tmp_path / "model.gguf").symlink_to(model)
    tiny.write(tmp_path / "tiny.gguf", "qwen3")
    (tmp_path / "words.txt").write_text("golem\ngold\nalpha\n")
    plain = tiny.write(tmp_path / "plain.gguf", "gemma4-e2b", "F32")
    write_seeing_model(tmp_path / "gemma-4-E2B.gguf", plain)
    write_projector(tmp_path / "mmproj.gguf", 256)
    (tmp_path / "cat.png").write_bytes(picture())
    (tmp_path / "words.wav").write_bytes(recording())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLE)
    return tmp_path


@pytest.mark.parametrize("page", ["python.md", "plugins.md", "operators.md"])
def test_the_programs_of_a_page_run_one_after_the_other(page, folder, capsys):
    space: dict = {}
    assert programs(page)
    for code in programs(page):
        exec(compile(code, page, "exec"), space)


def test_the_numbers_that_the_debugging_program_prints_are_the_models(folder, capsys):
    space: dict = {}
    (code,) = [code for code in programs("plugins.md") if "ReferenceExecutor" in code]
    exec(code, space)
    ex = tiny.executor("reference", tiny.decoder(folder / "tiny.gguf"))
    wanted = tiny.run(ex, (0, 0, [5, 17, 42, 8], 1))["logits"]
    assert np.array_equal(space["found"]["logits"], wanted)
    assert capsys.readouterr().out.count("\n") == 4


def test_files_of_settings_are_accepted(tmp_path):
    (text,) = blocks("operators.md", "toml")
    path = tmp_path / "golem.toml"
    path.write_text(text)
    settings = config.load(["-config", str(path)], Plugins(), {}).settings["server"]
    assert (settings.parallel, settings.context, settings.cache_ttl) == (4, 32768, 1800.0)
    (points,) = blocks("plugins.md", "toml")
    assert tomllib.loads(points) == {"project": {"entry-points": {"golem": {"mine": "golem_mine"}}}}


@pytest.mark.parametrize("page", PAGES)
def test_json_is_json(page):
    for text in blocks(page, "json"):
        json.loads(text)


# ---- the HTTP API ----


@pytest.fixture
def client():
    flags = ["-model", "fake.gguf", "-context", "512", "-n", "20"]
    service = Service(config.load(flags, load_plugins(), {}).settings, Plugins(), open_fake)
    application = create_app(service)
    service.load()
    client = TestClient(application)
    client.application = application
    yield client
    service.close()


def test_every_request_of_the_api_page_is_answered(client):
    sent = 0
    for block in blocks("api.md", "sh"):
        for line in re.split(r"\n(?=curl)", block.strip()):
            words = [word for word in shlex.split(line) if word not in ("curl", "-N")]
            path = words[0].removeprefix("localhost:8080")
            if "-d" in words:
                answer = client.simulate_post(path, body=words[words.index("-d") + 1])
            else:
                answer = client.simulate_get(path)
            assert answer.status_code == 200, (line, answer.text)
            sent += 1
    assert sent >= 5


def keys(value):
    """The keys of a JSON value and of what is below it, but for those left out with "…"."""
    if isinstance(value, dict) and "…" not in value:
        return {key: keys(item) for key, item in value.items()}
    return keys(value[0]) if isinstance(value, list) and value else None


def shown(wanted, found):
    """The part of ``found`` that has the shape of ``wanted``."""
    if wanted is None or not isinstance(found, dict):
        return wanted
    return {key: shown(wanted.get(key), item) for key, item in found.items()}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}]}),
        ("/v1/completions", {"prompt": "hello"}),
    ],
)
def test_the_bodies_that_are_shown_have_the_keys_of_those_that_are_sent(client, path, body):
    sent = client.simulate_post(path, json=body).json
    kind = sent["object"]
    (example,) = [
        example
        for text in blocks("api.md", "json")
        if (example := json.loads(text)).get("object") == kind
    ]
    assert list(example) == list(sent)
    assert shown(keys(example), keys(sent)) == keys(example)


def test_every_route_is_on_the_api_page(client):
    text = (DOCS / "api.md").read_text("utf-8")
    routes = [
        re.sub(r"\{.*?\}", "{id}", node.uri_template)
        for node in _walk(client.application.falcon._router._roots)
        if node.uri_template
    ]
    assert len(routes) >= 8
    assert [route for route in routes if f"{route}`" not in text] == []


def _walk(nodes):
    for node in nodes:
        yield node
        yield from _walk(node.children)
