"""Names that models go by in Ollama's dialect, and models that are made of others."""

from dataclasses import replace

import pytest
from falcon.testing import TestClient

from golem_core.pins import Manifest
from golem_core.plugins import load_plugins
from golem_server import config
from golem_server.app import create_app
from golem_server.derived import Derived, FolderStore
from golem_server.errors import Refusal
from golem_server.modelfile import read_modelfile
from golem_server.ollama_names import canonical, tagged
from golem_server.service import Service
from tests.plugins import tiny
from tests.server.fake import open_fake


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("llama3", "llama3:latest"),
        ("Llama3:8B", "llama3:8b"),
        ("library/llama3", "llama3:latest"),
        ("registry.ollama.ai/library/llama3:latest", "llama3:latest"),
        ("me/mine", "me/mine:latest"),
        ("host.org:5000/me/mine:v1", "host.org:5000/me/mine:v1"),
        ("smollm2-135m-q4_1", "smollm2-135m-q4_1:latest"),
    ],
)
def test_one_spelling_of_a_name(name, known):
    assert canonical(name) == known


@pytest.mark.parametrize("name", ["", " ", "a b", "a:b:c", "../x", "a/../b", "-a", "a\n", "ä"])
def test_names_that_are_none(name):
    assert canonical(name) is None


def test_names_are_shown_with_their_tag():
    assert (tagged("a"), tagged("a:b"), tagged("h:1/n/a")) == ("a:latest", "a:b", "h:1/n/a:latest")


# ---- made models ----

MADE = Derived("m:latest", "me/m:latest", "base", "0" * 64, system="be", parameters={"top_k": 3})


def test_a_made_model_is_kept_and_found(tmp_path):
    store = FolderStore(tmp_path)
    store.put(MADE)
    assert FolderStore(tmp_path).get("me/m:latest") == MADE
    assert store.all() == [MADE]
    assert store.get("other:latest") is None
    assert store.remove("me/m:latest") and not store.remove("me/m:latest")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace('"be"', '"evil"'),
        lambda text: text[:-5],
        lambda text: "[]",
        lambda text: text.replace("me/m:latest", "other:latest"),
    ],
)
def test_one_that_was_edited_by_hand_is_refused(tmp_path, edit):
    store = FolderStore(tmp_path)
    store.put(MADE)
    (path,) = tmp_path.iterdir()
    path.write_text(edit(path.read_text()))
    with pytest.raises(Refusal, match="was edited by hand, and is refused: create it again"):
        store.get("me/m:latest")
    assert store.all() == []
    store.put(MADE)
    assert store.get("me/m:latest") == MADE


def test_long_names_are_kept_apart(tmp_path):
    store = FolderStore(tmp_path)
    names = [f"{'h' * 300}/{'n' * 80}/{'m' * 80}:{tag}" for tag in ("a", "b")]
    for name in names:
        store.put(replace(MADE, key=canonical(name), system=name))
    assert [store.get(canonical(name)).system for name in names] == names


def test_a_folder_is_not_filled_over_the_network(tmp_path, monkeypatch):
    store = FolderStore(tmp_path)
    with pytest.raises(Refusal, match="may take 1 MiB"):
        store.put(replace(MADE, system="x" * (1 << 20)))
    monkeypatch.setattr("golem_server.derived.MOST", 2)
    for tag in "ab":
        store.put(replace(MADE, key=f"m:{tag}"))
    with pytest.raises(Refusal, match="holds 2 made models already"):
        store.put(replace(MADE, key="m:c"))


def test_a_folder_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(Refusal, match=r"cannot be kept in .*: No such file"):
        FolderStore(tmp_path / "none").put(MADE)


def test_a_modelfile():
    text = '''# a comment
FROM base
SYSTEM """You are
two lines"""
TEMPLATE "{{ x }}"
PARAMETER temperature 0.5
parameter stop "a b"
PARAMETER stop c
PARAMETER mirostat_tau many
MESSAGE user hello there
'''
    assert read_modelfile(text) == {
        "from": "base",
        "system": "You are\ntwo lines",
        "template": "{{ x }}",
        "parameters": {"temperature": 0.5, "stop": ["a b", "c"], "mirostat_tau": "many"},
        "messages": [{"role": "user", "content": "hello there"}],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ADAPTER ./x", "ADAPTER is not implemented"),
        ("FROM", "this line is no command"),
        ('SYSTEM """open', "SYSTEM has no closing"),
    ],
)
def test_a_modelfile_that_is_wrong(text, message):
    with pytest.raises(Refusal, match=message):
        read_modelfile(text)


@pytest.fixture
def folder(tmp_path):
    """A client of a server that knows one pinned model, a real file, and none at start."""
    path = tiny.write(tmp_path / "tiny-f32.gguf", "qwen3-tied")
    Manifest.read(tmp_path).pin([path])
    plugins = load_plugins()
    settings = config.load(["-models", str(tmp_path), "-context", "256"], plugins, {}).settings
    service = Service(settings, plugins)
    application = create_app(service)
    application.write = lambda line: None
    service.load()
    yield TestClient(application), tmp_path
    service.close()


def test_a_pinned_model_is_listed_with_its_pin_and_made_anew(folder):
    client, path = folder
    (model,) = client.simulate_get("/api/tags").json["models"]
    assert model["name"] == "tiny-f32:latest"
    assert model["golem"]["pinned"] is True and model["golem"]["playable"] is True
    assert model["details"]["family"] == "qwen3"
    shown = client.simulate_post("/api/show", json={"model": "tiny"}).json
    assert shown["model_info"]["qwen3.block_count"] == 3
    assert shown["model_info"]["tokenizer.ggml.tokens"] is None
    assert "tokenizer.chat_template" not in shown["model_info"]

    modelfile = "FROM tiny\nSYSTEM hm\nPARAMETER num_predict 3"
    made = client.simulate_post("/api/create", json={"model": "mine", "modelfile": modelfile})
    assert made.text.splitlines()[-1] == '{"status":"success"}'
    answer = client.simulate_post(
        "/api/generate", json={"model": "mine", "prompt": "hi", "stream": False}
    ).json
    assert answer["eval_count"] <= 3 and answer["load_duration"] > 0
    assert client.simulate_get("/golem").json["model"]["pin"] == model["digest"]
    told = client.simulate_get("/api/tags").json["models"]
    assert [(m["name"], m["details"]["parent_model"]) for m in told] == [
        ("tiny-f32:latest", ""),
        ("mine:latest", "tiny-f32:latest"),
    ]
    # The same name, another file.
    Manifest.read(path).pin([tiny.write(path / "other.gguf", "llama")], "tiny-f32")
    refused = client.simulate_post("/api/generate", json={"model": "mine", "prompt": "hi"})
    assert refused.status_code == 400
    assert "was made of another file" in refused.json["error"]


def test_a_model_that_cannot_be_played_says_why(folder):
    client, path = folder
    broken = path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(20))
    Manifest.read(path).pin([broken], "broken")
    told = {m["name"]: m["golem"] for m in client.simulate_get("/api/tags").json["models"]}
    assert told["broken:latest"]["playable"] is False
    assert "broken.gguf" in told["broken:latest"]["reason"]


def test_think_is_refused_by_a_model_that_does_not(tmp_path):
    plugins = load_plugins()
    flags = ["-model", "m.gguf"]
    service = Service(config.load(flags, plugins, {}).settings, plugins, open_fake)
    application = create_app(service)
    application.write = lambda line: None
    service.load()
    try:
        service.engine.model.reasoning = None
        client = TestClient(application)
        asked = {"model": "mute", "messages": [{"role": "user", "content": "x"}], "stream": False}
        refused = client.simulate_post("/api/chat", json=asked | {"think": True})
        assert (refused.status_code, refused.json) == (
            400,
            {"error": '"mute" does not support thinking'},
        )
        assert client.simulate_post("/api/chat", json=asked | {"think": False}).status_code == 200
    finally:
        service.close()
