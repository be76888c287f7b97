"""The server's settings, its command, and where it listens."""

import os
import re
import socket
import stat
import tomllib

import pytest

from golem_core.cpu import cores
from golem_core.plugins import Plugins
from golem_core.settings import SettingsError
from golem_server import cli, config
from golem_server.address import Address, listen, parse_address
from golem_server.version import VERSION
from tests.core.test_plugins import loaded, module


def command(capsys, monkeypatch, *arguments, **environ):
    """``(status, stdout, stderr)`` of golem-server."""
    for name in list(os.environ):
        if name.startswith("GOLEM_"):
            monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    status = cli.main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_nothing_given_is_one_line_that_says_what_would_help(capsys, monkeypatch):
    status, out, err = command(capsys, monkeypatch)
    assert (status, out) == (1, "")
    assert re.fullmatch(
        r"golem-server: no model: pass -model, -models(, | or )-embed.*, "
        r"or set GOLEM_MODEL, GOLEM_MODELS(, | or )GOLEM_EMBED.*\n",
        err,
    )


def test_version_and_help(capsys, monkeypatch):
    assert command(capsys, monkeypatch, "-version") == (0, f"golem-server {VERSION}\n", "")
    status, out, _ = command(capsys, monkeypatch, "--help")
    assert status == 0
    assert out.startswith("usage: golem-server [options]\n")
    for setting in config.Table("server", config.ServerSettings).settings:
        assert f"  -{setting.flag}" in out
    for name in [*config.OTHER_VARIABLES, *(f"-{action}" for action in config.ACTIONS)]:
        assert name in out


def test_check_config_prints_every_value_and_its_origin(capsys, monkeypatch, tmp_path):
    file = tmp_path / "golem.toml"
    file.write_text("model = 'a.gguf'\n[server]\ncontext = 8192\nparallel = 3\n")
    status, out, _ = command(
        capsys, monkeypatch, "-check-config", "-config", str(file), "-parallel", "4", GOLEM_N="-1"
    )
    assert status == 0
    server = tomllib.loads(out)["server"]
    assert (server["model"], server["context"], server["parallel"]) == ("a.gguf", 8192, 4)
    assert "parallel = 4  # -parallel" in out
    assert "n = -1  # GOLEM_N" in out
    assert f"context = 8192  # {file}: [server] context" in out
    assert "queue = 256  # default" in out


def test_the_file_may_be_named_by_the_environment(capsys, monkeypatch, tmp_path):
    file = tmp_path / "golem.toml"
    file.write_text("model = 'a.gguf'")
    status, out, _ = command(capsys, monkeypatch, "-check-config", GOLEM_CONFIG=str(file))
    assert status == 0
    assert 'model = "a.gguf"' in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-modle", "x"], "there is no flag -modle; did you mean -model?"),
        (["-model", "x", "-addr", "here"], '-addr "here" is not an address'),
        (["-model", "x", "-parallel", "0"], "-parallel: 0 is out of range"),
        (["-model", "x", "-config", "/none.toml"], "/none.toml: No such file or directory"),
        (["-model", "x", "-n", "-2"], "-n: -2 is out of range, it may be at least -1"),
        (["-model", "x", "-vulkan"], "there is no flag -vulkan"),
        (["-model", "x", "-api-key-file", "/none"], "-api-key-file /none: "),
    ],
)
def test_a_wrong_setting_is_one_line_and_status_1(capsys, monkeypatch, arguments, message):
    status, _, err = command(capsys, monkeypatch, *arguments)
    assert status == 1
    assert err.startswith(f"golem-server: {message}")
    assert err.count("\n") == 1


def test_a_model_that_is_not_there_is_one_line_and_status_1(capsys, monkeypatch):
    status, _, err = command(capsys, monkeypatch, "-model", "/none.gguf", "-addr", "127.0.0.1:0")
    assert status == 1
    assert err.startswith("golem-server: /none.gguf: ")
    assert err.lower().endswith("no such file or directory\n")


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\0\0\0", b"not a model at all" * 9])
def test_a_broken_model_is_one_line_and_status_1(capsys, monkeypatch, tmp_path, content):
    file = tmp_path / "broken.gguf"
    file.write_bytes(content)
    status, _, err = command(capsys, monkeypatch, "-model", str(file), "-addr", "127.0.0.1:0")
    assert status == 1
    assert err.startswith(f"golem-server: {file}")
    assert err.count("\n") == 1


def test_a_taken_port_is_one_line_and_status_1(capsys, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, _, err = command(capsys, monkeypatch, "-model", "x", "-addr", address)
    assert status == 1
    assert err == f"golem-server: -addr {address}: Address already in use\n"


def test_what_a_failed_plugin_would_have_known_is_explained():
    plugins = Plugins()

    def broken():
        raise ImportError("No module named 'torch'")

    plugins.add("krea2", broken, "golem_plugins.krea2")
    with pytest.raises(SettingsError) as refusal:
        config.load(["-krea2", "x"], plugins, {})
    assert str(refusal.value).startswith("there is no flag -krea2; ")
    assert "plugin krea2 (golem_plugins.krea2) could not be loaded" in str(refusal.value)


def test_a_plugin_that_serves_something_is_enough():
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Settings:
        model: str = config.setting("", "its model", own_name=True)

    plugins = loaded(tts=module(golem_settings=lambda: Settings))
    config.validate(config.load(["-tts", "x"], plugins, {}).settings)
    with pytest.raises(SettingsError) as refusal:
        config.validate(config.load([], plugins, {}).settings)
    assert str(refusal.value) == (
        "no model: pass -model, -models, -embed or -tts, or set GOLEM_MODEL, GOLEM_MODELS, "
        "GOLEM_EMBED or GOLEM_TTS"
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ["-cache-ram", "8192"],
            "-cache-ram 8192 is 8192 bytes, in which no conversation has room: write 8192MiB if "
            "you meant that, or 0 to keep none",
        ),
        (
            ["-api-key-file", "/nowhere"],
            "-api-key-file /nowhere: no such file or directory",
        ),
        (["-media-root", "/nowhere"], "-media-root /nowhere: is no folder"),
        (
            ["-draft", "off", "-draft-n", "5"],
            "-draft-n 5: -draft off guesses nothing; leave one of the two out",
        ),
        (
            ["-image-min-tokens", "90", "-image-max-tokens", "10"],
            "-image-min-tokens 90: more than the 10 of -image-max-tokens",
        ),
    ],
)
def test_settings_that_would_never_serve_are_refused_at_the_start(flags, said):
    settings = config.load(["-model", "x", *flags], loaded(), {}).settings
    with pytest.raises(SettingsError) as refusal:
        config.validate(settings)
    assert str(refusal.value) == said


@pytest.mark.parametrize(
    ("origin", "serves"),
    [
        ("*", True),
        ("https://chat.example.org", True),
        ("http://localhost:3000", True),
        ("app://obsidian.md", True),
        ("https://chat.example.org/", False),
        ("https://Chat.example.org", False),
        ("chat.example.org", False),
    ],
)
def test_origins_that_no_browser_sends_are_refused_at_the_start(origin, serves):
    settings = config.load(["-model", "x", "-cors", origin], loaded(), {}).settings
    if serves:
        config.validate(settings)
        return
    with pytest.raises(SettingsError, match="is what no browser sends as its origin"):
        config.validate(settings)


def test_lines_of_the_key_file_may_be_indented(tmp_path):
    file = tmp_path / "keys"
    file.write_text("# mine\n\n  # yours\n  one\t\ntwo\n")
    given = ["-model", "x", "-api-key-file", str(file)]
    assert config.api_keys(config.load(given, loaded(), {}).settings["server"]) == {"one", "two"}


# ---- addresses ----


@pytest.mark.parametrize(
    ("text", "address", "url"),
    [
        ("127.0.0.1:8080", Address("127.0.0.1", 8080), "http://127.0.0.1:8080"),
        ("[::1]:0", Address("::1", 0), "http://[::1]:0"),
        (":80", Address("0.0.0.0", 80), "http://0.0.0.0:80"),
        ("localhost:65535", Address("localhost", 65535), "http://localhost:65535"),
        ("unix:/run/golem.sock", Address(path="/run/golem.sock"), "unix:/run/golem.sock"),
    ],
)
def test_addresses(text, address, url):
    assert parse_address(text) == address
    assert parse_address(text).url == url


@pytest.mark.parametrize(
    "text", ["", "8080", "host", "host:", "host:x", "::1:80", "host:70000", "unix:", "host:٣"]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(SettingsError, match="-addr"):
        parse_address(text)


def test_listening_on_ipv6():
    try:
        sock, address = listen(Address("::1", 0))
    except SettingsError:
        pytest.skip("this machine has no IPv6 loopback")
    with sock:
        assert sock.getsockname()[1] == address.port > 0


def test_a_unix_socket_is_its_users_alone_and_what_a_killed_server_left_is_replaced(tmp_path):
    address = Address(path=str(tmp_path / "golem.sock"))
    first, taken = listen(address)
    assert taken == address
    assert stat.S_IMODE(os.stat(address.path).st_mode) == 0o600
    with first, pytest.raises(SettingsError, match=r"-addr unix:.*: Address already in use"):
        listen(address)
    again, _ = listen(address)  # nobody listens there any more
    again.close()


def test_a_file_in_the_place_of_a_unix_socket_is_left_alone(tmp_path):
    path = tmp_path / "golem.sock"
    path.write_text("mine")
    with pytest.raises(SettingsError, match="Address already in use"):
        listen(Address(path=str(path)))
    assert path.read_text() == "mine"


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(SettingsError, match=r"-addr 203\.0\.113\.1:0: "):
        listen(Address("203.0.113.1", 0))


@pytest.mark.parametrize("name", ["GOLEM_API_KEY", "GOLEM_API_KEY_FILE"])
def test_an_empty_variable_does_not_open_the_server(capsys, monkeypatch, name):
    status, _, error = command(capsys, monkeypatch, "-model", "m.gguf", **{name: ""})
    flag = name.removeprefix("GOLEM_").lower().replace("_", "-")
    told = f"{name} is set and empty: give it a value, or unset it to leave -{flag} out"
    assert (status, error) == (1, f"golem-server: {told}\n")


def test_more_threads_than_could_ever_pay_are_refused(capsys, monkeypatch):
    arguments = ("-model", "m.gguf", "-threads", "5000", "-check-config")
    status, _, error = command(capsys, monkeypatch, *arguments)
    assert status == 1
    assert error.startswith("golem-server: -threads: 5000 threads: this process may use ")


def test_threads_that_outnumber_the_cores_are_told_as_such(monkeypatch):
    monkeypatch.setattr(cores, "usable_cpus", lambda: 2)
    assert cores.shown_threads(2) == "2 cores"
    assert cores.shown_threads(8) == "8 threads on 2 cores"
    cores.check_threads(16)
    with pytest.raises(ValueError, match="more than 16 threads would only wait for each other"):
        cores.check_threads(17)


@pytest.mark.parametrize(
    ("environ", "toml", "told"),
    [
        ({"GOLEM_DRAFT": "off", "GOLEM_DRAFT_N": "5"}, "", "GOLEM_DRAFT_N 5: GOLEM_DRAFT off "),
        ({}, "draft = 'off'\ndraft-n = 5", "draft-n 5: {file}: [server] draft off guesses nothing"),
        ({"GOLEM_DRAFT": "off"}, "draft-n = 5", None),
        ({"GOLEM_DRAFT_N": "5"}, "draft = 'off'", None),
        ({}, "draft = 'off'\ndraft-n = 0", None),
    ],
)
def test_drafts_may_be_turned_off_over_a_length_set_elsewhere(environ, toml, told, tmp_path):
    file = tmp_path / "golem.toml"
    file.write_text(toml)
    settings = config.load(["-model", "x", "-config", str(file)], loaded(), environ).settings
    if told is None:
        config.validate(settings)
        return
    with pytest.raises(SettingsError, match=re.escape(told.format(file=file))):
        config.validate(settings)


@pytest.mark.parametrize(
    ("given", "bytes_"), [("-1", 500), ("0", 0), ("64KiB", 65536), (None, 250)]
)
def test_the_memory_of_what_left_its_slot(monkeypatch, given, bytes_):
    """-1 is llama-server's "no limit"; that of the machine is always there."""
    monkeypatch.setattr(config, "memory_limit", lambda: 1000)
    flags = [] if given is None else ["-cache-ram", given]
    settings = config.load(["-model", "x", *flags], loaded(), {}).settings
    config.validate(settings)
    assert settings["server"].cache_bytes == bytes_


@pytest.mark.parametrize("given", ["-2", "-1MiB", "-0"])
def test_other_sizes_below_nothing_are_refused(given):
    with pytest.raises(SettingsError):
        config.load(["-model", "x", "-cache-ram", given], loaded(), {})
    with pytest.raises(SettingsError):
        config.load(["-model", "x", "-max-body", "-1"], loaded(), {})
