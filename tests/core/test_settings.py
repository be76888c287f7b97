"""One table drives flags, environment, TOML, help and validation."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from golem_core import setting_kinds, settings
from golem_core.settings import Duration, SettingsError, Size, Table, setting


@dataclass(frozen=True)
class Server:
    model: Path | None = setting(None, "the model file")
    parallel: int = setting(1, "conversations at once", low=1, high=64)
    cache_ttl: Duration = setting(0.0, "forget after this long idle", low=0)
    max_body: Size = setting(64 << 20, "largest request")
    keys: tuple[str, ...] = setting((), "accepted keys", secret=True)
    vulkan: bool = setting(False, "compute on a device")
    noise: str = setting("gpu", "which noise", choices=("gpu", "cpu"))
    scale: float = setting(1.5, "a factor", low=0)
    config: Path | None = setting(None, "a TOML file", in_file=False)


@dataclass(frozen=True)
class Krea:
    model: Path | None = setting(None, "the checkpoint", own_name=True)
    keep: bool = setting(False, "keep it on the card")


TABLES = [Table("server", Server), Table("krea2", Krea, plugin=True)]


def resolve(arguments=(), environ=None, toml=None, others=()):
    fields = [s for table in TABLES for s in table.settings]
    given = settings.parse_flags(fields, arguments, ["help", "version"])
    return settings.resolve(
        TABLES,
        given=given,
        environ=environ or {},
        toml=tomllib.loads(toml) if toml else None,
        toml_name="golem.toml",
        other_variables=others,
    )


@pytest.mark.parametrize(
    "arguments",
    [["-parallel", "4"], ["--parallel", "4"], ["-parallel=4"], ["--parallel=4"]],
)
def test_a_flag_is_read_in_every_go_spelling(arguments):
    assert resolve(arguments)["server"].parallel == 4


@pytest.mark.parametrize(
    ("arguments", "value"),
    [(["-vulkan"], True), (["-vulkan=false"], False), (["-vulkan=1"], True), ([], False)],
)
def test_a_switch_needs_no_value_and_takes_one_after_an_equals_sign(arguments, value):
    assert resolve([*arguments, "-parallel", "2"])["server"].vulkan is value


def test_flag_beats_environment_beats_file_beats_default():
    toml = "[server]\nparallel = 2\nscale = 2.0\ncache-ttl = '1m'"
    environ = {"GOLEM_PARALLEL": "3", "GOLEM_SCALE": "3"}
    found = resolve(["-parallel", "4"], environ, toml)
    server = found["server"]
    assert (server.parallel, server.scale, server.cache_ttl) == (4, 3.0, 60.0)
    assert server.max_body == 64 << 20
    assert [found.origins["server", name] for name in ("parallel", "scale", "cache_ttl")] == [
        "-parallel",
        "GOLEM_SCALE",
        "golem.toml: [server] cache-ttl",
    ]
    assert found.origins["server", "max_body"] == "default"


def test_the_servers_keys_may_stand_at_the_top_of_the_file():
    assert resolve(toml="parallel = 5\n[krea2]\nkeep = true")["server"].parallel == 5


def test_a_plugin_has_its_section_its_flags_and_its_variables():
    by_file = resolve(toml="[krea2]\nmodel = 'a'\nkeep = true")["krea2"]
    by_flag = resolve(["-krea2", "a", "-krea2-keep"])["krea2"]
    by_variable = resolve(environ={"GOLEM_KREA2": "a", "GOLEM_KREA2_KEEP": "yes"})["krea2"]
    assert by_file == by_flag == by_variable == Krea(Path("a"), True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10m", 600), ("1h30m", 5400), ("250ms", 0.25), ("90", 90), ("0", 0), ("1.5s", 1.5)],
)
def test_durations(text, seconds):
    assert resolve(["-cache-ttl", text])["server"].cache_ttl == seconds
    shown = setting_kinds.show_duration(float(seconds))
    assert setting_kinds.parse_duration(shown) == seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [("4096", 4096), ("64MiB", 64 << 20), ("64M", 64 << 20), ("1.5g", 3 << 29), ("2 KB", 2048)],
)
def test_sizes(text, count):
    assert resolve(["-max-body", text])["server"].max_body == count
    assert setting_kinds.parse_size(setting_kinds.show_size(count)) == count


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-paralel", "2"], "there is no flag -paralel; did you mean -parallel?"),
        (["-zzz"], "there is no flag -zzz; -help lists what exists"),
        (["-parallel"], "-parallel needs a value: a whole number"),
        (["-parallel", "two"], '-parallel: "two" is not a whole number'),
        (["-parallel", "0"], "-parallel: 0 is out of range, it may be from 1 to 64"),
        (["-scale", "nan"], '-scale: "nan" is not a number'),
        (["-scale", "inf"], '-scale: "inf" is not a number'),
        (
            ["-max-body", "9" * 400 + "t"],
            f"-max-body: {(1 << 60) + 1}B is out of range, it may be ",
        ),
        (["-cache-ttl", "9" * 400], "-cache-ttl: infs is out of range, it may be from 0s to 3"),
        (["-cache-ttl", "-5s"], "-cache-ttl: -5s is out of range, it may be at least 0s"),
        (["-max-body", "big"], '-max-body: "big" is not a size such as 512MiB'),
        (["-vulkan=maybe"], '-vulkan: "maybe" is not true or false'),
        (["-noise", "tpu"], '-noise: "tpu" is none of gpu, cpu'),
        (["model.gguf"], '"model.gguf" is not a flag; flags begin with a dash, -model FILE'),
    ],
)
def test_a_wrong_flag_is_refused_with_what_is_possible(arguments, message):
    with pytest.raises(SettingsError) as refusal:
        resolve(arguments)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("paralel = 2", 'golem.toml: [server] has no setting "paralel"; did you mean parallel?'),
        ("[krea3]", "golem.toml: there is no section [krea3]; did you mean krea2?"),
        (
            "parallel = 'x'",
            "golem.toml: [server] parallel is 'x', and it takes a whole number",
        ),
        ("parallel = true", "golem.toml: [server] parallel is True, and it takes a whole number"),
        ("vulkan = 1", "golem.toml: [server] vulkan is 1, and it takes true or false"),
        ("keys = [1]", "golem.toml: [server] keys: every element must be a text"),
        (
            "parallel = 99",
            "golem.toml: [server] parallel: 99 is out of range, it may be from 1 to 64",
        ),
        (
            "parallel = 2\n[server]\nparallel = 3",
            "golem.toml: [server] parallel is also set at the top of the file; keep one of them",
        ),
        ("config = 'x'", 'golem.toml: [server] has no setting "config"; -help lists what exists'),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(toml, message):
    with pytest.raises(SettingsError) as refusal:
        resolve(toml=toml)
    assert str(refusal.value) == message


def test_an_unknown_variable_is_refused_with_the_nearest():
    with pytest.raises(SettingsError, match="no setting GOLEM_PARALEL; did you mean GOLEM_PARALL"):
        resolve(environ={"GOLEM_PARALEL": "2"})


def test_variables_that_are_no_settings_are_left_alone():
    environ = {
        "GOLEM_CPU": "avx2",
        "HOME": "/",
        "GOLEM_SERVICE_HOST": "10.0.0.1",
        "GOLEM_PORT_8080_TCP_ADDR": "10.0.0.1",
        "GOLEM_PARALLEL": "",
    }
    assert resolve(environ=environ, others=["GOLEM_CPU"])["server"] == Server()


def test_lists_are_repeated_flags_commas_or_arrays():
    for found in (
        resolve(["-keys", "a", "-keys", "b"]),
        resolve(["-keys", "a, b"]),
        resolve(environ={"GOLEM_KEYS": "a,b"}),
        resolve(toml="keys = ['a', 'b']"),
    ):
        assert found["server"].keys == ("a", "b")


def test_the_report_is_toml_that_sets_the_same_again_and_hides_secrets():
    found = resolve(
        ["-model", "m.gguf", "-keys", "hush", "-cache-ttl", "90m", "-vulkan", "-config", "c"]
    )
    report = found.report()
    assert "hush" not in report
    assert "parallel = 1  # default" in report
    assert '"90m"  # -cache-ttl' in report
    again = resolve(toml=report)
    assert again["krea2"] == found["krea2"]
    assert again["server"].model == Path("m.gguf")
    assert again["server"].cache_ttl == 5400


def test_help_names_every_flag_with_variable_default_and_meaning():
    text = settings.help_text("golem-server", TABLES, {"version": "print it"}, {"GOLEM_CPU": "set"})
    assert "-cache-ttl TIME\n        forget after this long idle" in text
    assert "-max-body SIZE\n        largest request; default 64MiB; $GOLEM_MAX_BODY" in text
    assert "plugin krea2:" in text
    assert "-krea2-keep" in text
    for table in TABLES:
        for s in table.settings:
            assert s.variable in text


def test_a_wrong_secret_is_not_shown():
    @dataclass(frozen=True)
    class Secret:
        pin: int = setting(0, "a pin", secret=True)

    one = Table("server", Secret).settings[0]
    with pytest.raises(SettingsError) as refusal:
        one.read("hunter2", "-pin")
    assert "hunter2" not in str(refusal.value)


def test_a_field_that_is_no_setting_is_a_mistake_of_the_plugin():
    @dataclass(frozen=True)
    class Bare:
        port: int = 1

    with pytest.raises(TypeError, match="made with setting"):
        _ = Table("server", Bare).settings


def test_a_file_that_is_missing_or_no_toml_is_named(tmp_path):
    with pytest.raises(SettingsError, match="No such file"):
        settings.read_toml(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("a = = b")
    with pytest.raises(SettingsError, match="is not TOML"):
        settings.read_toml(broken)


@pytest.mark.parametrize("text", ["", " ", ","])
def test_an_empty_list_is_refused_where_a_shell_variable_was_empty(text):
    with pytest.raises(SettingsError, match="-keys: this value is not a list of texts"):
        resolve(["-keys", text])


def test_a_file_nested_beyond_reason_is_refused_in_one_line(tmp_path):
    path = tmp_path / "golem.toml"
    path.write_text("a=" + "[" * 100_000)
    with pytest.raises(SettingsError, match="nested too deeply"):
        settings.read_toml(path)
