"""What ``golem-server`` can be told, and where it looks for it."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from golem_core.cpu.cores import check_threads
from golem_core.model import memory_limit
from golem_core.model.prediction import KINDS
from golem_core.plugins import Plugins
from golem_core.settings import (
    Duration,
    Settings,
    SettingsError,
    Size,
    Table,
    help_text,
    parse_flags,
    read_toml,
    resolve,
    setting,
)
from golem_core.state.kinds import CACHE_TYPES
from golem_server.address import parse_address
from golem_server.llama_flags import hints

PROGRAM = "golem-server"
ACTIONS = {
    "check-config": "check the settings, print them with where each came from, and leave",
    "help": "print this text and leave",
    "version": "print the version and leave",
}
# GOLEM_* variables that are read elsewhere and are no settings of the server.
OTHER_VARIABLES = {
    "GOLEM_CPU": "forces one instruction set: portable, avx2, avx512, amx or neon",
    "GOLEM_DEBUG_BATCHES": "when not empty, one line on stderr for every pass",
    "GOLEM_PLAN": "plain turns every fusion of the planner off, the answers stay the same; show "
    "writes what was planned to stderr",
    "GOLEM_EXT": "while building: only the extensions whose path contains this",
    "GOLEM_TEST_DATA": "while testing: the folder of the larger oracles",
}
# Settings that name what to serve.
MODELS = (("server", "model"), ("server", "models"), ("server", "embed"))
LEAST_CACHE = 64 << 10  # fewer bytes of -cache-ram are a slip
MOST_CACHE = 8 << 30  # bytes for conversations outside the slots, unless somebody says more
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/?#\sA-Z]+")  # as browsers send it
SPARE_THREADS = 16  # for /health and the like, while every other thread serves a generation


@dataclass(frozen=True)
class ServerSettings:
    """The settings of the server itself; a plugin's are its own."""

    model: Path | None = setting(None, "GGUF file of a chat model")
    models: Path | None = setting(
        None,
        "folder of pinned models (golem-models), loaded when a request names one",
        placeholder="DIR",
    )
    mmproj: Path | None = setting(
        None, "GGUF file of the projector that sees or hears for the chat model"
    )
    media_root: Path | None = setting(
        None,
        "a folder whose pictures and recordings requests may name; none = only what they carry",
        placeholder="FOLDER",
    )
    image_min_tokens: int = setting(
        0, "positions a picture takes at least; 0 = the architecture's own", low=0, high=4096
    )
    image_max_tokens: int = setting(
        0, "positions a picture takes at most; 0 = the architecture's own", low=0, high=4096
    )
    media_max_pixels: int = setting(64 << 20, "pixels of the largest picture taken", low=1)
    media_max_seconds: Duration = setting(600.0, "the longest recording taken", low=1, high=86400)
    media_max_bytes: Size = setting(32 << 20, "bytes of the largest picture or recording", low=1)
    media_cache: Size = setting(
        256 << 20, "memory for what was made of pictures and recordings, which come again", low=0
    )
    embed: Path | None = setting(
        None, "GGUF file of an embedding model, for /v1/embeddings and its kin"
    )
    models_max: int = setting(1, "models of -models in memory at a time", low=1, high=64)
    keep_alive: Duration = setting(
        300.0,
        "how long a model of -models stays after its last answer; 0 = not at all, -1 = for ever",
        low=-1,
    )
    alias: str = setting("", "the name it is served under; default: the file's, without .gguf")
    addr: str = setting(
        "127.0.0.1:8080",
        "where to listen: host:port, [v6]:port or unix:/path; without a host (:8080) on every IPv4 "
        "address of this machine",
        placeholder="ADDR",
    )
    context: int = setting(
        4096, "positions kept, cut between the slots; 0 = what the model was trained for", low=0
    )
    n: int = setting(
        1024,
        "most tokens of an answer when the request names no max_tokens; -1 = fill the slot",
        low=-1,
    )
    parallel: int = setting(1, "conversations at once (slots)", low=1, high=256)
    queue: int = setting(256, "requests that may wait; one more is answered 503", low=0, high=4096)
    queue_timeout: Duration = setting(
        0.0, "how long a request may wait for a slot; 0 = any time", low=0
    )
    request_timeout: Duration = setting(
        0.0, "how long a request may take, waiting included; 0 = any time", low=0
    )
    cache_ttl: Duration = setting(
        0.0, "forget a conversation's tokens after this long idle; 0 = never", low=0
    )
    cache_type_k: str = setting("f16", "what keys are kept as", choices=tuple(CACHE_TYPES))
    cache_type_v: str = setting("f16", "what values are kept as", choices=tuple(CACHE_TYPES))
    cache_ram: Size | None = setting(
        None,
        "memory for conversations that had to leave their slot; 0 = they are forgotten; -1 = half "
        "of the memory; default: a quarter of it, 8GiB at most",
        low=-1,
    )
    slot_save_path: Path | None = setting(
        None, "folder of POST /slots/N?action=save and restore", placeholder="DIR"
    )
    draft: str = setting(
        "auto",
        "guess next tokens and draw several in a pass where that is faster; the text is the same",
        choices=KINDS,
    )
    draft_n: int = setting(0, "most tokens of a guess; 0 = as many as pay", low=0, high=63)
    checkpoints: int = setting(
        3, "copies of its recurrent state a slot keeps, of models that have one", low=0, high=64
    )
    checkpoint_memory: Size = setting(
        0, "memory for these copies; 0 = a quarter of the machine's", low=0
    )
    threads: int = setting(0, "cores to compute on; 0 = the physical ones", low=0)
    pass_width: int = setting(
        0, "most tokens of one pass; 0 = the best measured for this processor", low=0, high=4096
    )
    no_mmap: bool = setting(False, "read the model into memory instead of mapping its file")
    mlock: bool = setting(
        False, "keep weights and conversations in memory, never swapped out (see ulimit -l)"
    )
    builtin_template: bool = setting(
        False, "render conversations by the architecture's own template, not by the file's"
    )
    rope_scaling: str = setting(
        "", "how to stretch the context", choices=("", "none", "linear", "yarn")
    )
    rope_scale: float = setting(0.0, "by what factor to stretch it; 0 = the file's", low=0)
    rope_freq_base: float = setting(0.0, "base of the angles; 0 = the file's", low=0)
    rope_original_context: int = setting(0, "the context that is stretched; 0 = the file's", low=0)
    api_key: tuple[str, ...] = setting(
        (), "keys that are accepted; none = no key", secret=True, guards=True
    )
    api_key_file: Path | None = setting(
        None, "a file of further keys, one a line, # comments", guards=True
    )
    cors: tuple[str, ...] = setting(
        (), "origins whose pages may call this server, or *", placeholder="ORIGIN"
    )
    allowed_hosts: tuple[str, ...] = setting(
        (), "further names in the Host header of requests from this machine, or *"
    )
    max_body: Size = setting(64 << 20, "largest request body", low=1 << 10)
    drain: Duration = setting(30.0, "how long to finish answers after SIGTERM", low=0)
    reasoning: str = setting(
        "off",
        "whether the model thinks when a request does not say; auto = as its template has it",
        choices=("off", "on", "auto"),
    )
    log_prompts: bool = setting(False, "write prompts and answers to the log")
    config: Path | None = setting(
        None, "a TOML file of settings: [server], and a section for each plugin", in_file=False
    )

    @property
    def cache_bytes(self) -> int:
        """What ``cache_ram`` comes to on this machine."""
        if self.cache_ram == -1:  # no limit, as llama-server has it, but that of the machine
            return memory_limit() // 2
        if self.cache_ram is not None:
            return self.cache_ram
        return min(MOST_CACHE, memory_limit() // 4)

    @property
    def most_answers(self) -> int:
        """Answers of one model that may run and wait at once."""
        return self.parallel + self.queue

    @property
    def most_requests(self) -> int:
        """Requests that may hold models or wait for one."""
        return self.models_max * self.parallel + self.queue

    @property
    def server_threads(self) -> int:
        """Threads of the HTTP server: each waiting or streaming request holds one."""
        return self.most_requests + SPARE_THREADS


@dataclass(frozen=True)
class Loaded:
    """The outcome of reading the settings."""

    settings: Settings
    actions: frozenset[str]  # of ACTIONS, those asked for
    help: str


def load(
    arguments: Sequence[str], plugins: Plugins, environ: Mapping[str, str] = os.environ
) -> Loaded:
    """Read flags, environment and the TOML file named by ``-config``.

    Raises:
        SettingsError: with what is wrong and what is possible.
    """
    tables = [Table("server", ServerSettings)]
    tables += [Table(name, cls, plugin=True) for name, cls in plugins.settings().items()]
    fields = [s for table in tables for s in table.settings]
    try:
        given = parse_flags(fields, arguments, ACTIONS, hints(s.flag for s in fields))
        helps = "help" in given.actions
        named = given.values.get("config", [environ.get("GOLEM_CONFIG", "")])[-1]
        settings = resolve(
            tables,
            given=given,
            environ={} if helps else environ,
            toml=read_toml(Path(named)) if named and not helps else None,
            toml_name=named,
            other_variables=OTHER_VARIABLES,
        )
    except SettingsError as error:
        if plugins.failures:
            lacking = "; ".join(str(failure) for failure in plugins.failures)
            raise SettingsError(f"{error} ({lacking})") from None
        raise
    text = help_text(PROGRAM, tables, ACTIONS, OTHER_VARIABLES)
    return Loaded(settings, frozenset(given.actions), text)


def require_something_to_serve(settings: Settings) -> None:
    """Refuse a server that nobody gave a model.

    Raises:
        SettingsError: with every flag and variable that names one.
    """
    openers = [
        s
        for table in settings.tables
        for s in table.settings
        if s.detail.own_name or (s.table, s.field) in MODELS
    ]
    if any(getattr(settings[s.table], s.field) for s in openers):
        return
    flags = _either([f"-{s.flag}" for s in openers])
    raise SettingsError(f"no model: pass {flags}, or set {_either([s.variable for s in openers])}")


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def validate(settings: Settings) -> None:
    """Check what no single field can.

    Raises:
        SettingsError: for the first thing that is wrong.
    """
    server = settings["server"]
    require_something_to_serve(settings)
    parse_address(server.addr)
    try:
        check_threads(server.threads)
    except ValueError as error:
        raise SettingsError(f"-threads: {error}") from None
    if server.models is not None and not server.models.is_dir():
        raise SettingsError(f"-models {server.models}: is no folder")
    if server.media_root is not None and not server.media_root.is_dir():
        raise SettingsError(f"-media-root {server.media_root}: is no folder")
    least, most = server.image_min_tokens, server.image_max_tokens
    if 0 < most < least:
        raise SettingsError(f"-image-min-tokens {least}: more than the {most} of -image-max-tokens")
    if server.slot_save_path is not None and not server.slot_save_path.is_dir():
        raise SettingsError(f"-slot-save-path {server.slot_save_path}: is no folder")
    if server.cache_ram is not None and 0 < server.cache_ram < LEAST_CACHE:
        given = server.cache_ram
        raise SettingsError(
            f"-cache-ram {given} is {given} bytes, in which no conversation has room: write "
            f"{given}MiB if you meant that, or 0 to keep none"
        )
    _refuse_a_length_of_no_guess(settings)
    for origin in server.cors:
        if not _ORIGIN.fullmatch(origin):
            raise SettingsError(
                f'-cors "{origin}" is what no browser sends as its origin: write it as '
                "https://chat.example.org or http://localhost:3000, in small letters and without "
                "a path, or *"
            )
    api_keys(server)


def _refuse_a_length_of_no_guess(settings: Settings) -> None:
    """-draft off -draft-n 5 is a slip; -draft off over a file that has both set is none."""
    server = settings["server"]
    kind, length = (settings.origins["server", field] for field in ("draft", "draft_n"))
    # flags, variables, keys of the file
    together = length in (f"{kind}-n", f"{kind}_N", f"{kind}_n")
    if server.draft == "off" and server.draft_n and together:
        raise SettingsError(
            f"{length} {server.draft_n}: {kind} off guesses nothing; leave one of the two out"
        )


def api_keys(server: ServerSettings) -> frozenset[str]:
    """The keys of ``-api-key`` and ``-api-key-file``; an empty set asks nobody for one.

    Raises:
        SettingsError: when the file cannot be read or holds no key.
    """
    keys = set(server.api_key)
    if not all(key.strip() for key in keys):
        raise SettingsError("-api-key holds an empty key: leave the flag out to ask nobody for one")
    if server.api_key_file is not None:
        try:
            lines = server.api_key_file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = (isinstance(error, OSError) and error.strerror) or str(error)
            raise SettingsError(f"-api-key-file {server.api_key_file}: {why.lower()}") from None
        lines = [line.strip() for line in lines]
        found = {line for line in lines if line and not line.startswith("#")}
        if not found:
            raise SettingsError(f"-api-key-file {server.api_key_file} holds no key")
        keys |= found
    return frozenset(keys)
