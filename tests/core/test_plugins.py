"""Plugins: hooks are asked one plugin at a time, and one that fails is named, not fatal."""

import sys
import types
from importlib.metadata import EntryPoint

import pytest

from golem_core import plugins
from golem_core.plugins import Description, Plugins, Runtime, UnknownArchitecture, hookimpl


def module(**functions):
    made = types.ModuleType("made")
    for name, function in functions.items():
        setattr(made, name, hookimpl(function))
    return made


def loaded(**modules):
    found = Plugins()
    for name, one in modules.items():
        found.add(name, lambda one=one: one, f"package.{name}")
    return found


class Model:
    pass


def test_architectures_of_all_plugins_are_found_by_name():
    found = loaded(
        a=module(golem_architectures=lambda: {"llama": Model}),
        b=module(golem_architectures=lambda: {"qwen3": Model, "qwen3moe": Model}),
        c=module(),
    )
    assert sorted(found.architectures()) == ["llama", "qwen3", "qwen3moe"]
    assert found.architecture("qwen3") is Model
    assert found.failures == []


def test_an_unknown_architecture_is_refused_with_what_is_installed_and_what_failed():
    def broken():
        raise ImportError("No module named 'torch'")

    found = loaded(a=module(golem_architectures=lambda: {"llama": Model}))
    found.add("mamba", broken, "golem_mamba")
    with pytest.raises(UnknownArchitecture) as refusal:
        found.architecture("mamba")
    assert str(refusal.value) == (
        'no installed plugin serves the architecture "mamba"; installed: llama; plugin mamba '
        "(golem_mamba) could not be loaded: ImportError: No module named 'torch'"
    )


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (module(golem_arcitectures=lambda: {}), "unknown hook 'golem_arcitectures'"),
        (module(golem_open=lambda setings: None), "setings"),
        (module(golem_architectures=lambda: {"llama": Model}), "already served by plugin a"),
        (module(golem_architectures=lambda: 1 / 0), "ZeroDivisionError"),
        (module(golem_architectures=lambda: {"mine": "Mine"}), "'Mine' is not a class"),
        (module(golem_architectures=lambda: sys.exit("no licence")), "SystemExit: no licence"),
    ],
)
def test_a_wrong_plugin_is_named_and_leaves_nothing_behind(bad, said):
    found = loaded(a=module(golem_architectures=lambda: {"llama": Model}), bad=bad)
    assert [failure.name for failure in found.failures] == ["bad"]
    assert said in str(found.failures[0])
    assert "\n" not in str(found.failures[0])
    assert found.names == ["a"]
    assert list(found.architectures()) == ["llama"]


class Capability:
    def __init__(self):
        self.closed = False

    def close(self):
        self.closed = True


def test_each_plugin_gets_its_own_settings_and_answers_for_its_own_capability():
    one, two = Capability(), Capability()
    found = loaded(
        a=module(
            golem_settings=lambda: dict,
            golem_open=lambda settings: one if settings == "for a" else None,
            golem_routes=lambda capability: [("/a", capability)],
        ),
        b=module(
            golem_open=lambda settings, runtime: two if runtime.threads == 3 else None,
            golem_describe=lambda capability: Description(lines=("b is here",)),
        ),
    )
    assert found.settings() == {"a": dict}
    opened = found.open({"a": "for a"}, Runtime(threads=3, pass_width=0))
    assert [(o.plugin, o.capability) for o in opened] == [("a", one), ("b", two)]
    assert found.routes(opened[0]) == [("/a", one)]
    assert found.routes(opened[1]) == []
    assert found.describe(opened[0]) == Description()
    assert found.describe(opened[1]).lines == ("b is here",)


def test_what_is_open_is_closed_when_a_later_plugin_cannot_open():
    one = Capability()

    def fails():
        raise FileNotFoundError("no checkpoint")

    found = loaded(a=module(golem_open=lambda: one), b=module(golem_open=fails))
    with pytest.raises(FileNotFoundError):
        found.open({}, Runtime(threads=1, pass_width=0))
    assert one.closed


@pytest.mark.parametrize("turned", [False, True])
def test_golems_own_plugins_load_first_and_the_others_by_name(monkeypatch, turned):
    points = [
        EntryPoint("zeta", "zeta_package", "golem"),
        EntryPoint("qwen3", "golem_plugins.qwen3", "golem"),
        EntryPoint("alpha", "alpha_package", "golem"),
        EntryPoint("llama", "golem_plugins.llama", "golem"),
    ]
    found = points[::-1] if turned else points
    monkeypatch.setattr(plugins.metadata, "entry_points", lambda group: found)
    assert [name for name, _, _ in plugins.installed()] == ["llama", "qwen3", "alpha", "zeta"]


def test_the_installed_plugins_load():
    found = plugins.load_plugins()
    assert found.failures == []
