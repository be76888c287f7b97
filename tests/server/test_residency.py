"""Models that come when they are asked for and leave when their time has run out."""

import math
import threading
import time

import pytest
from falcon.testing import TestClient

from golem_core.pins import Manifest
from golem_core.plugins import load_plugins
from golem_core.settings import SettingsError
from golem_server import config
from golem_server.app import create_app
from golem_server.errors import ClientGone, Refusal
from golem_server.residency import Entry, Residency
from golem_server.service import Service
from tests.plugins import tiny

PATIENCE = 20.0


def mapped(path) -> bool:
    """Whether a file is in this process's maps."""
    with open("/proc/self/maps") as maps:
        return any(line.rstrip().endswith(str(path)) for line in maps)


class Double:
    """An engine that records its life in ``events``."""

    def __init__(self, name, events):
        self.name = name
        self.events = events
        self.model = self
        self.closed = False

    def close(self):
        if not self.closed:
            self.closed = True
            self.events.append(f"-{self.name}")


@pytest.fixture
def house(tmp_path):
    events = []
    manifest = Manifest(tmp_path)
    for name in "abc":
        (tmp_path / f"{name}.gguf").write_bytes(name.encode())
        manifest.pin([tmp_path / f"{name}.gguf"])

    def load(entry):
        events.append(f"+{entry.name}")
        return Double(entry.name, events)

    def entry(name, keep_alive=60.0):
        fresh = Manifest.read(tmp_path)
        return Entry(name, tmp_path / f"{name}.gguf", fresh, keep_alive)

    made = []

    def residency(**options):
        made.append(Residency(load, **options))
        return made[-1]

    residency.entry = entry
    residency.events = events
    residency.folder = tmp_path
    yield residency
    for one in made:
        one.close()


def test_a_model_is_loaded_once_and_verified(house):
    models = house()
    first = models.acquire(house.entry("a"))
    second = models.acquire(house.entry("a"))
    assert first.engine is second.engine
    assert (house.events, second.load_seconds) == (["+a"], 0.0)
    resident = models.resident("a")
    assert (resident.users, resident.verified_at is not None) == (2, True)
    first.release()
    first.release()
    assert resident.users == 1


def test_a_switch_drops_before_it_loads(house):
    models = house()
    with models.acquire(house.entry("a")):
        pass
    with models.acquire(house.entry("b")):
        pass
    # Double.close is called for the engine and for its model
    assert house.events == ["+a", "-a", "+b"]
    assert [r.entry.name for r in models.residents()] == ["b"]


def test_two_may_stay_and_the_one_least_used_leaves(house):
    models = house(most=2)
    for name in "aba":
        models.acquire(house.entry(name)).release()
    models.acquire(house.entry("c")).release()
    assert house.events == ["+a", "+b", "-b", "+c"]


def test_a_model_in_use_is_waited_for_in_turn(house):
    """The one who waits for another model comes before those who ask for the first one later."""
    models = house()
    lease = models.acquire(house.entry("a"))
    order = []

    def ask(name):
        with models.acquire(house.entry(name)):
            order.append(name)

    threads = []
    for place, name in enumerate("ba"):
        threads.append(threading.Thread(target=ask, args=(name,)))
        threads[-1].start()
        deadline = time.monotonic() + PATIENCE
        while len(models._turns) <= place and time.monotonic() < deadline:
            time.sleep(0.001)
    assert order == []
    lease.release()
    for thread in threads:
        thread.join(PATIENCE)
    assert order == ["b", "a"]
    assert house.events == ["+a", "-a", "+b", "-b", "+a"]


def test_who_hangs_up_while_waiting_leaves_the_queue(house):
    models = house()
    lease = models.acquire(house.entry("a"))
    with pytest.raises(ClientGone):
        models.acquire(house.entry("b"), gone=lambda: True)
    lease.release()
    models.acquire(house.entry("b")).release()
    assert house.events == ["+a", "-a", "+b"]


def test_no_more_wait_for_a_model_than_may(house):
    """Each who waits keeps a thread of the server, and some must be left for /health."""
    models = house(requests=2)
    lease = models.acquire(house.entry("a"))
    waiter = threading.Thread(target=lambda: models.acquire(house.entry("b")).release())
    waiter.start()
    deadline = time.monotonic() + PATIENCE
    while not models._turns and time.monotonic() < deadline:
        time.sleep(0.001)
    for name in "ab":  # who wants the model that is here waits behind the other
        with pytest.raises(Refusal, match="2 requests hold models or wait for one") as refusal:
            models.acquire(house.entry(name))
        assert (refusal.value.status, refusal.value.retry) == (503, True)
    lease.release()
    waiter.join(PATIENCE)
    models.acquire(house.entry("a")).release()
    assert house.events == ["+a", "-a", "+b", "-b", "+a"]


@pytest.mark.parametrize(("keep", "events"), [(0.0, ["+a", "-a"]), (None, ["+a"]), (60, ["+a"])])
def test_the_time_after_an_answer(house, keep, events):
    models = house()
    models.acquire(house.entry("a"), keep_alive=keep).release()
    models.reap()
    assert house.events == events


def test_a_used_model_never_expires(house):
    models = house()
    lease = models.acquire(house.entry("a"), keep_alive=0.0)
    assert models.expire("a")
    models.reap()
    assert house.events == ["+a"]
    lease.release()
    assert house.events == ["+a", "-a"]
    assert not models.expire("a")


def test_for_ever_is_told_as_infinity(house):
    models = house(most=2)
    models.acquire(house.entry("a"), keep_alive=math.inf).release()
    models.acquire(house.entry("b")).release()
    assert [r.entry.name for r in models.residents()] == ["a", "b"]
    assert models.residents()[0].expires_in == math.inf
    assert 50 < models.residents()[1].expires_in <= 60


def test_a_changed_file_is_refused_once_and_then_verified_again(house):
    models = house()
    models.acquire(house.entry("a")).release()
    (house.folder / "a.gguf").write_bytes(b"A")
    with pytest.raises(Refusal, match="changed since golem verified it: unloaded") as refusal:
        models.acquire(house.entry("a"))
    assert (refusal.value.status, house.events) == (503, ["+a", "-a"])
    with pytest.raises(Refusal, match=r"refuse: .*its sha256 is") as refusal:
        models.acquire(house.entry("a"))
    assert refusal.value.status == 400
    Manifest.read(house.folder).pin([house.folder / "a.gguf"])
    models.acquire(house.entry("a")).release()
    assert house.events == ["+a", "-a", "+a"]


def test_a_changed_file_is_left_to_those_who_use_it(house):
    models = house()
    lease = models.acquire(house.entry("a"))
    (house.folder / "a.gguf").write_bytes(b"A")
    for _ in range(2):
        with pytest.raises(Refusal, match="changed"):
            models.acquire(house.entry("a"))
    assert house.events == ["+a"]
    lease.release()
    assert house.events == ["+a", "-a"]


def test_a_file_that_is_gone_is_a_404_and_costs_nobody_a_place(house):
    models = house()
    models.acquire(house.entry("a")).release()
    (house.folder / "b.gguf").unlink()
    with pytest.raises(Refusal, match="not on this machine") as refusal:
        models.acquire(house.entry("b"))
    assert (refusal.value.status, house.events) == (404, ["+a"])


def test_a_load_that_fails_leaves_room(house):
    def broken(entry):
        raise ValueError("no model at all")

    models = Residency(broken)
    for _ in range(2):
        with pytest.raises(Refusal, match="golem does not play it: no model at all") as refusal:
            models.acquire(house.entry("a"))
        assert refusal.value.status == 400
    assert models.residents() == []


def test_closing_ends_waits(house):
    models = house()
    models.acquire(house.entry("a"))
    seen = []

    def ask():
        try:
            models.acquire(house.entry("b"))
        except Refusal as refusal:
            seen.append(refusal.status)

    thread = threading.Thread(target=ask)
    thread.start()
    models.close()
    thread.join(PATIENCE)
    assert (seen, house.events) == ([503], ["+a", "-a"])


# ---- with real files, through HTTP ----


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("models")
    for name in ("llama", "qwen3"):
        path = tiny.write(made / f"{name}-f32.gguf", name)
        Manifest.read(made).pin([path])
    (made / "broken.gguf").write_bytes(b"GGUF")
    Manifest.read(made).pin([made / "broken.gguf"])
    return made


@pytest.fixture
def client(folder):
    given = ["-models", str(folder), "-context", "128", "-threads", "1", "-keep-alive", "5m"]
    plugins = load_plugins()
    service = Service(config.load(given, plugins, {}).settings, plugins)
    app = TestClient(create_app(service))
    service.load()
    app.service = service
    yield app
    service.close()


def ask(client, model, **more):
    body = {"model": model, "prompt": "hello", "max_tokens": 2, **more}
    return client.simulate_post("/v1/completions", json=body)


def test_a_request_brings_its_model_and_a_switch_unmaps_the_other(client, folder):
    files = {name: folder / f"{name}-f32.gguf" for name in ("llama", "qwen3")}
    for name, other in (("llama", "qwen3"), ("qwen3", "llama")):
        assert ask(client, name).status_code == 200
        assert [r.entry.name for r in client.service.residency.residents()] == [f"{name}-f32"]
        assert (mapped(files[name]), mapped(files[other])) == (True, False)
    listed = client.simulate_get("/v1/models").json["data"]
    assert [(one["id"], one["status"]["value"]) for one in listed] == [
        ("broken", "unloaded"),
        ("llama-f32", "unloaded"),
        ("qwen3-f32", "loaded"),
    ]


@pytest.mark.parametrize("route", ["/api/tags", "/v1/models"])
def test_a_listing_leaves_no_file_mapped(client, folder, route):
    assert client.simulate_get(route).status_code == 200
    assert [file.name for file in folder.glob("*.gguf") if mapped(file)] == []


def test_a_model_that_left_is_unmapped_though_an_answer_still_holds_it(client, folder):
    assert ask(client, "llama", keep_alive="10m").status_code == 200
    held = client.service.residency.residents()[0].engine
    assert ask(client, "qwen3").status_code == 200
    assert held.model.name == "llama-f32"
    assert not mapped(folder / "llama-f32.gguf")


def test_an_expired_model_is_out_of_the_maps(client, folder):
    assert ask(client, "llama", keep_alive=0).status_code == 200
    deadline = time.monotonic() + 2.0
    while mapped(folder / "llama-f32.gguf") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not mapped(folder / "llama-f32.gguf")
    assert ask(client, "llama", keep_alive="10m").status_code == 200
    assert 590 < client.service.residency.residents()[0].expires_in <= 600


@pytest.mark.parametrize(
    ("model", "status", "message"),
    [
        ("nobody", 404, "golem serves pinned models only (broken, llama-f32, qwen3-f32)"),
        ("", 400, "model is required: this server has several"),
        ("broken", 400, "golem does not play it"),
    ],
)
def test_models_that_cannot_be_had(client, model, status, message):
    answer = ask(client, model)
    assert answer.status_code == status
    assert message in answer.json["error"]["message"]


@pytest.mark.parametrize("keep", ["soon", "5 m", True, [], {"m": 5}, "m"])
def test_a_time_that_is_none_is_refused(client, keep):
    answer = ask(client, "llama", keep_alive=keep)
    assert answer.status_code == 400
    assert "keep_alive" in answer.json["error"]["message"]


def test_looking_leaves_the_time_of_a_model_as_it_was(client):
    assert ask(client, "llama", keep_alive=600).status_code == 200
    for path, body in (("/tokenize", {"content": "x"}), ("/props", None)):
        named = {"model": "llama"}
        if body is None:
            answer = client.simulate_get(path, params=named)
        else:
            answer = client.simulate_post(path, json=body | named)
        assert answer.status_code == 200, answer.text
        assert 550 < client.service.residency.residents()[0].expires_in <= 600


def test_what_was_counted_stays_counted_when_a_model_leaves(client):
    ask(client, "llama")
    ask(client, "qwen3")
    ask(client, "llama", keep_alive=0)
    stats = client.service.stats
    assert (stats.finished, stats.drawn) == (3, 6)
    assert (stats.running, stats.waiting) == (0, 0)
    assert "golem_requests_total 3.0" in client.simulate_get("/metrics").text


@pytest.mark.parametrize("name", ["llama-f32", "LLAMA", "llama:latest", "Llama-F32.gguf"])
def test_a_model_is_told_of_under_every_name_that_requests_use(client, name):
    assert client.simulate_get(f"/v1/models/{name}").json["id"] == "llama-f32"


def test_an_empty_folder_lists_nothing(tmp_path):
    plugins = load_plugins()
    service = Service(config.load(["-models", str(tmp_path)], plugins, {}).settings, plugins)
    app = TestClient(create_app(service))
    service.load()
    assert app.simulate_get("/v1/models").json["data"] == []
    service.close()


def test_a_folder_that_is_none_is_refused_at_the_start(tmp_path):
    settings = config.load(["-models", str(tmp_path / "no")], load_plugins(), {}).settings
    with pytest.raises(SettingsError, match="is no folder"):
        config.validate(settings)


def test_a_slot_of_a_model_that_has_left_does_not_overwrite_its_file(folder, tmp_path):
    given = ["-models", str(folder), "-context", "128", "-threads", "1"]
    plugins = load_plugins()
    flags = [*given, "-slot-save-path", str(tmp_path)]
    service = Service(config.load(flags, plugins, {}).settings, plugins)
    app = TestClient(create_app(service))
    service.load()
    ask(app, "llama")
    path = "/slots/0?action=save&model=llama"
    assert app.simulate_post(path, json={"filename": "a"}).json["n_saved"] > 0
    kept = (tmp_path / "a").read_bytes()
    ask(app, "qwen3")
    answer = app.simulate_post(path, json={"filename": "a"})
    assert answer.status_code == 400
    assert "not in memory" in answer.json["error"]["message"]
    assert (tmp_path / "a").read_bytes() == kept
    service.close()
