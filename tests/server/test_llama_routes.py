"""llama-server's other routes, against what one answered on the same model."""

import pytest

from golem_core.schedule import energy
from golem_server.card import fim_tokens
from golem_server.infill import fill
from golem_server.llama_slot_files import SlotFiles, valid_name
from golem_server.messages import NO_MESSAGE
from tests.server.conftest import chat_body, receive
from tests.server.recorded import HELLO, RECORDED, Recorded
from tests.server.test_chat import shape
from tests.server.test_guards import client  # noqa: F401

# Where golem's answer is not the recorded one: an id outside the vocabulary is the request's fault.
OTHERWISE = {
    "vector::_M_range_check: __n (which is 99999) >= this->size() (which is 320)": (
        400,
        "Prompt contains invalid tokens",
    ),
}
SEPARATE = ("/embedding", "/rerank")  # what a chat model does of them is in test_embeddings.py
SIMPLE = [one for one in RECORDED["simple"] if one[0] not in SEPARATE]


@pytest.mark.parametrize(("path", "sent", "status", "recorded"), SIMPLE)
def test_recorded_answers(tiny, path, sent, status, recorded):
    message = recorded.get("error", {}).get("message")
    status, message = OTHERWISE.get(message, (status, message))
    body = tiny.ask(path, sent, status)
    if message is None or message == "this feature is disabled":
        assert body == recorded
    else:
        assert body["error"]["message"] == message
        assert body["error"]["code"] == status


def test_every_dialect_counts_the_same_prompt(tiny):
    assert tiny.ask("/v1/responses/input_tokens", {"input": "hello"}) == {
        "input_tokens": 15,
        "object": "response.input_tokens",
    }
    counted = tiny.ask("/v1/messages/count_tokens", {"messages": HELLO, "max_tokens": 2})
    assert counted == {"input_tokens": 15}


# ---- slots ----


def test_slots_are_told_as_llama_server_does(tiny):
    tiny.native("hello", n_predict=2, id_slot=0)
    tiny.ask("/v1/chat/completions", chat_body("hello", max_tokens=2, id_slot=1))
    slots = tiny.look("/slots")
    assert [shape(slot) for slot in slots] == [shape(slot) for slot in RECORDED["slots"]]
    assert [slot["n_prompt_tokens"] for slot in slots] == [2, 16]
    assert [slot["params"]["chat_format"] for slot in slots] == ["Content-only", "peg-native"]
    assert tiny.look("/slots?fail_on_no_slot=1") == slots


def test_a_slot_that_never_had_a_task_says_less(tmp_path):
    fresh = Recorded(tmp_path)
    try:
        assert fresh.look("/slots")[1] == {
            "id": 1,
            "n_ctx": 256,
            "speculative": False,
            "is_processing": False,
        }
    finally:
        fresh.service.close()


def test_a_busy_slot_is_told_and_none_free_is_a_503(served):
    connections = served.fill_slots(chat_body("forever", stream=True))
    status, slots = served.get("/slots")
    assert [slot["is_processing"] for slot in slots] == [True, True]
    assert all(slot["next_token"][0]["has_next_token"] for slot in slots)
    status, body = served.get("/slots?fail_on_no_slot=1")
    assert (status, body["error"]["message"]) == (503, "no slot available")
    for connection in connections:
        connection.close()


class Files:
    """Slot files that only remember what they were asked."""

    def __init__(self):
        self.asked = []
        self.busy = 1

    def save(self, engine, slot, name):
        if self.busy:
            self.busy -= 1
            return None
        self.asked.append(("save", slot, name))
        return {"n_saved": 36, "n_written": 19104, "timings": {"save_ms": 0.1}}

    def restore(self, engine, slot, name):
        self.asked.append(("restore", slot, name))
        return {"n_restored": 36, "n_read": 19104, "timings": {"restore_ms": 0.1}}


@pytest.fixture
def files(tiny):
    tiny.service.slot_files = Files()
    yield tiny.service.slot_files
    tiny.service.slot_files = None


# Golem's ids are those that exist; a file name that is missing is the request's fault.
SLOT_ACTIONS = [
    one
    for one in RECORDED["slot_actions"]
    if not one[0].startswith(("/slots/7", "/slots/-1"))
    and one[1].get("filename") not in ("nofile", "bad.bin")
]


@pytest.mark.parametrize(("path", "sent", "status", "recorded"), SLOT_ACTIONS)
def test_recorded_slot_actions(tiny, files, path, sent, status, recorded):
    tiny.native("x" * 36, n_predict=1, id_slot=0)
    if status == 500:
        assert tiny.ask(path, sent, 400)["error"]["message"] == "key 'filename' not found"
        return
    body = tiny.ask(path, sent, status)
    if status == 400:
        assert body["error"]["message"] == recorded["error"]["message"]
    elif "action=erase" in path:
        assert body == {"id_slot": 0, "n_erased": 36}
        assert tiny.ask(path, sent) == {"id_slot": 0, "n_erased": 0}
    else:
        assert shape(body) == shape(recorded)


@pytest.mark.parametrize("slot", ["7", "-1", "2", "abc", "1.0", "٣"])
def test_ids_of_slots_that_do_not_exist(tiny, slot):
    error = tiny.ask(f"/slots/{slot}?action=erase", {}, 400)["error"]
    assert error["message"] == "Invalid slot ID"


@pytest.mark.parametrize("action", ["save", "restore", "zork"])
def test_without_a_folder_nothing_is_saved(tiny, action):
    error = tiny.ask(f"/slots/0?action={action}", {"filename": "a"}, 501)["error"]
    assert error["message"].startswith("This server does not support slots action. Start it with")
    assert error["type"] == "not_supported_error"


def test_the_model_of_a_slot_may_be_named_in_the_body(tiny, files):
    error = tiny.ask("/slots/0?action=save", {"filename": "a", "model": 5}, 400)["error"]
    assert error["message"] == "Field 'model': type must be string, but is number"
    named: list[str] = []
    find = tiny.service.find
    tiny.service.find = lambda asked: named.append(asked) or find(asked)
    try:
        tiny.ask("/slots/0?action=erase", {"model": "second"})
        tiny.ask("/slots/0?action=erase&model=first", {"model": "second"})
    finally:
        del tiny.service.find
    assert named == ["second", "first"]


def test_erasing_waits_for_the_answer(served):
    connections = served.fill_slots(chat_body("say hi", stream=True))
    erasing = served.open("/slots/0?action=erase", {})
    served.allow(None)
    receive(erasing, lambda got: b'"n_erased":' in got)
    for connection in (*connections, erasing):
        connection.close()


@pytest.mark.parametrize("name", ["a", "a.bin", "ü", "x" * 255, "a b", "-", "a.b.c", "\u4e2d" * 85])
def test_names_of_files(name):
    assert valid_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "a..b", "a/b", "a\\b", " a", "a ", "a.", "a:b", "a*", "a?", 'a"', "a<"),
        *("a>", "a|", "a\nb", "\x7f", "\x85", "\uff0e", "\u2215", "\u2216", "\ufffd", "\ufeff"),
        *("\ud800", "x" * 256, "\u4e2d" * 86),
    ],
)
def test_names_that_are_none(name):
    assert not valid_name(name)


# ---- props, text ----


def test_props(tiny):
    props = tiny.look("/props")
    assert props["default_generation_settings"]["n_ctx"] == 256
    short = [key for key, _ in shape(RECORDED["slots"][0]["params"])]
    assert list(props["default_generation_settings"]["params"]) == short
    assert props["total_slots"] == 2
    assert props["model_alias"] == "tiny.gguf"
    assert props["model_path"].endswith("/tiny.gguf")
    assert (props["bos_token"], props["eos_token"]) == ("<|endoftext|>", "<|im_end|>")
    assert props["chat_template"].startswith("{%- for m in messages")
    caps = props["chat_template_caps"]
    assert caps["supports_system_role"] and caps["supports_string_content"]
    assert not caps["supports_tools"] and not caps["supports_tool_calls"]
    error = tiny.ask("/props", {}, 501)["error"]
    assert error["message"].startswith("This server does not support changing global properties")


def test_special_tokens_are_added_when_asked_for(tiny):
    plain = tiny.ask("/tokenize", {"content": "hello"})["tokens"]
    added = tiny.ask("/tokenize", {"content": "hello", "add_special": True})["tokens"]
    tokenizer = tiny.service.engine.model.tokenizer
    opening = [tokenizer.bos] if tokenizer.add_bos else []
    assert added == opening + plain


@pytest.mark.parametrize(
    ("path", "sent", "message"),
    [
        ("/tokenize", {"content": 5}, "Field 'content': it must be a string or a list of strings"),
        ("/tokenize", {"content": [1.5]}, "Field 'content': it must be a string or a list of"),
        ("/tokenize", {"content": [999]}, "Prompt contains invalid tokens"),
        ("/tokenize", {"content": "a", "add_special": "yes"}, "Field 'add_special': type must be"),
        ("/detokenize", {"tokens": "a"}, "Field 'tokens': it must be a list of tokens, and holds"),
        ("/detokenize", {"tokens": [True]}, "Field 'tokens': it must be a list of tokens, and"),
    ],
)
def test_what_is_no_text_and_no_token(tiny, path, sent, message):
    error = tiny.ask(path, sent, 400)["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(message)


def test_the_prompt_of_a_conversation_is_refused_as_the_chat_is(tiny):
    error = tiny.ask("/apply-template", {"messages": []}, 400)["error"]
    assert error["message"] == NO_MESSAGE


def test_adapters(tiny):
    assert tiny.look("/lora-adapters") == []
    error = tiny.ask("/lora-adapters", [{"id": 0, "scale": 1}], 501)["error"]
    assert "LoRA adapters are not supported" in error["message"]
    assert tiny.ask("/lora-adapters", []) == {"success": True}
    assert tiny.ask("/lora-adapters", {}, 400)["error"]["message"] == (
        "Request body must be an array"
    )


def test_a_chat_models_own_vectors_in_the_native_shape(tiny):
    first, second = tiny.ask("/embedding", {"content": ["hello", [257, 258]]})
    assert (first["index"], second["index"]) == (0, 1)
    ((vector,), (other,)) = first["embedding"], second["embedding"]
    assert sum(x * x for x in vector) == pytest.approx(1, abs=1e-5)
    assert vector != other
    assert tiny.ask("/embeddings", {"input": "hello"})[0]["embedding"] == [vector]


# ---- filling gaps ----


class Letters:
    """A vocabulary of letters that fills gaps."""

    fim_pre, fim_suf, fim_mid = 1000, 1001, 1002
    bos, add_bos = 1003, True

    def encode(self, text, *, add_special, parse_special):
        assert not add_special and not parse_special
        return [ord(c) for c in text]


def told(ids):
    names = {1000: "<P>", 1001: "<S>", 1002: "<M>", 1003: "<B>", 1004: "<R>", 1005: "<F>"}
    return "".join(names.get(i) or chr(i) for i in ids)


def test_a_gap_stands_between_its_texts():
    ids = fill(Letters(), "def f(", "):", context=512, length=16, drawn=[120])
    assert told(ids) == "<B><P>def f(x<S>):<M>"


def test_files_come_first_with_the_tokens_that_the_vocabulary_has():
    extra = [("a.py", "A"), ("b.py", "B")]
    ids = fill(Letters(), "p", "s", context=1 << 14, length=16, extra=extra)
    assert told(ids) == ("\n\n--- snippet ---\n\nA\n\n--- snippet ---\n\nB<B><P>p<S>s<M>")
    coder = Letters()
    coder.fim_rep, coder.fim_sep, coder.add_bos = 1004, 1005, False
    ids = fill(coder, "p", "s", context=1 << 14, length=16, extra=extra)
    assert told(ids) == "<R>myproject\n<F>a.py\nA<F>b.py\nB<F>filename\n<P>p<S>s<M>"


def test_what_does_not_fit_is_left_out_around_the_gap():
    ids = fill(Letters(), "p" * 500 + "P", "S" + "s" * 500, context=116, length=16)
    text = told(ids)
    assert len(ids) < 116 - 16 + 5
    assert "P<S>S" in text
    assert text.count("p") == 74 and text.count("s") == 22


def test_a_vocabulary_without_the_tokens_fills_none(tiny):
    assert fim_tokens(tiny.service.engine.model.tokenizer) is None


# ---- metrics, records ----


def metrics(of):
    answer = of.simulate_get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4"
    assert int(answer.headers["Process-Start-Time-Unix"]) > 1e9
    lines = [line.rsplit(" ", 1) for line in answer.text.splitlines() if line[0] != "#"]
    return {name: float(value) for name, value in lines}


def test_metrics_have_llama_servers_names_and_count(tiny):
    before = metrics(tiny)
    tiny.native("hello world", n_predict=3)
    tiny.native("hello world", n_predict=3)
    after = metrics(tiny)
    grown = {name: after[name] - before[name] for name in after if name in before}
    assert grown["llamacpp:prompt_tokens_total"] == 3 + 1
    assert grown["llamacpp:prompt_tokens_cached_total"] == 2
    assert grown["llamacpp:tokens_predicted_total"] == 6
    assert grown["golem_requests_finished_total"] == 2
    assert after["llamacpp:predicted_tokens_seconds"] > 0
    assert metrics(tiny)["llamacpp:predicted_tokens_seconds"] == 0  # nothing since
    assert after["golem_slots"] == 2
    assert after['golem_first_token_seconds{quantile="0.5"}'] > 0
    assert {name for name in after if name.startswith("llamacpp:")} == {
        f"llamacpp:{name}"
        for name in (
            *("prompt_tokens_total", "prompt_tokens_cached_total", "prompt_seconds_total"),
            *("tokens_predicted_total", "tokens_predicted_seconds_total", "n_decode_total"),
            *("spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total"),
            *("spec_decode_num_accepted_tokens_total", "n_tokens_max", "prompt_tokens_seconds"),
            *("predicted_tokens_seconds", "requests_processing", "requests_deferred"),
            "n_busy_slots_per_decode",
        )
    }


def test_joules_are_told_by_every_dialect_and_summed(tiny, tmp_path, monkeypatch):
    """A package whose counter goes on by 1.5 J a reading and starts again after 4 J."""
    package = tmp_path / "intel-rapl:0"
    package.mkdir()
    counter = package / "energy_uj"
    for name, text in (("name", "package-0"), ("max_energy_range_uj", "3999999")):
        (package / name).write_text(text)
    counter.write_text("2000000")
    measured = energy.Energy(tmp_path)

    def read(path):
        text = path.read_text()
        if path == counter:
            counter.write_text(str((int(text) + 1_500_000) % 4_000_000))
        return text

    monkeypatch.setattr(energy, "_text", read)
    monkeypatch.setattr(tiny.service.engine, "_energy", measured)
    messages = [{"role": "user", "content": "hello"}]
    told = [tiny.native("hello world", n_predict=2)["timings"]["energy_j"] for _ in range(3)]
    body = {"messages": messages, "max_tokens": 2}
    told.append(tiny.ask("/v1/chat/completions", body)["timings"]["energy_j"])
    body = {"model": "m", "messages": messages, "stream": False, "options": {"num_predict": 2}}
    told.append(tiny.ask("/api/chat", body)["energy_j"])
    assert told == [1.5] * 5
    assert tiny.look("/golem/records")["records"][-1]["energy_j"] == 1.5
    assert metrics(tiny)["golem_energy_joules_total"] >= 7.5


def test_records_hold_the_last_answers_and_nothing_of_their_texts(tiny):
    tiny.native("a secret nobody logs", n_predict=4)
    body = tiny.look("/golem/records")
    last = body["records"][-1]
    assert (last["model"], last["finish"], last["completion_tokens"]) == ("tiny.gguf", "length", 4)
    assert last["ttft_ms"] > 0
    assert last["energy_j"] is None or last["energy_j"] >= 0
    assert body["keep"] == 256 and body["kept"] == len(body["records"])
    assert "secret" not in str(body)


def test_what_is_served(tiny):
    about = tiny.look("/golem")
    assert about["model"]["name"] == "tiny.gguf"
    assert about["model"]["pin"] == "unpinned"
    assert about["model"]["slots"] == 2
    assert about["answers"] == tiny.service.records.totals.answers


@pytest.mark.parametrize(
    "path", ["/golem", "/golem/records", "/metrics", "/slots", "/props", "/lora-adapters"]
)
def test_figures_are_behind_the_key(client, path):  # noqa: F811
    asked = client("-api-key", "one")
    assert asked.simulate_get(path).status_code == 401
    assert asked.simulate_get(path, headers={"X-Api-Key": "one"}).status_code == 200


def test_a_model_that_fills_no_gaps_says_which_tokens_it_lacks(tiny):
    error = tiny.ask("/infill", {"input_prefix": "a", "input_suffix": "b"}, 501)["error"]
    assert error["message"] == (
        "Infill is not supported by this model: prefix token is missing. suffix token is missing. "
        "middle token is missing. "
    )


# ---- real files ----


@pytest.fixture
def folder(tiny, tmp_path):
    tiny.service.slot_files = SlotFiles(tmp_path)
    yield tmp_path
    tiny.service.slot_files = None


def test_a_slot_goes_to_a_file_and_comes_back(tiny, folder):
    tiny.native("x" * 36, n_predict=1, id_slot=0)
    saved = tiny.ask("/slots/0?action=save", {"filename": "a.bin"})
    assert (saved["n_saved"], saved["n_written"]) == (36, (folder / "a.bin").stat().st_size)
    tiny.ask("/slots/0?action=erase", {})
    restored = tiny.ask("/slots/1?action=restore", {"filename": "a.bin"})
    assert (restored["n_restored"], restored["n_read"]) == (36, saved["n_written"])
    again = tiny.native("x" * 36, n_predict=1)
    assert (again["id_slot"], again["timings"]["cache_n"]) == (1, 35)


def test_files_that_cannot_be_taken_back_or_written(tiny, folder):
    tiny.native("x" * 36, n_predict=1, id_slot=0)
    (folder / "bad.bin").write_bytes(b"nothing")
    for name, why in (("bad.bin", "not a golem slot file"), ("nofile", "no such file")):
        error = tiny.ask("/slots/0?action=restore", {"filename": name}, 400)["error"]
        assert error["message"].startswith(f"Unable to restore slot: {why}")
        assert tiny.service.engine.slots[0].n_tokens == 0
    (folder / "taken").mkdir()
    error = tiny.ask("/slots/0?action=save", {"filename": "taken"}, 500)["error"]
    assert error["message"].startswith("Unable to save slot: ")


def test_props_tell_what_the_cache_holds_and_takes(tiny):
    cache = tiny.simulate_get("/props").json["cache"]
    states = tiny.service.engine.model.executor.states
    assert cache["slot_bytes"] == states.nbytes
    assert (cache["type_k"], cache["type_v"]) == (states.type_k, states.type_v)
