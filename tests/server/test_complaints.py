"""What users of other servers complain of most, each shown not to be so here.

Numbers are those of the list these come from; 1, 3, 4 and 5 stand beside what they are about
(test_turns_across_dialects.py, test_llama_completion.py, test_ollama.py, test_ollama_client.py),
as does 11 (test_ollama_client.py); 1 and 2 are here for memories that cannot be rewound.
"""

import base64
import json

import numpy as np
import openai
import pytest
from falcon.testing import TestClient

from golem_core.plugins import load_plugins
from golem_server import config
from golem_server.app import create_app
from golem_server.service import Service
from tests.plugins import tiny as tiny_models
from tests.server.conftest import PATIENCE, chat_body, receive, reset
from tests.server.recorded import BANNED, Recorded
from tests.server.test_chat import CHAT, stream
from tests.server.test_tools import CALL, TOOLS

# ---- 1 and 2, for sliding windows and recurrent states ----


def serve_tiny(path, folder):
    plugins = load_plugins()
    flags = ["-model", str(path), "-slot-save-path", str(folder), "-context", "2048", "-parallel"]
    service = Service(config.load([*flags, "1", "-threads", "2"], plugins, {}).settings, plugins)
    client = TestClient(create_app(service))
    service.load()
    client.service = service
    return client


@pytest.mark.parametrize("name", ["gemma3", "gemma4-e2b", "qwen35"])
def test_complaints_1_and_2_windows_and_recurrent_states_are_not_read_again(tmp_path, name):
    """ "forcing full prompt re-processing": every turn, and after every restore."""
    path = tiny_models.write(tmp_path / "tiny.gguf", name)
    rng = np.random.default_rng(1)
    turns = [rng.integers(20, 400, 300).tolist() for _ in range(3)]

    def ask(client, prompt):
        body = {"prompt": prompt, "n_predict": 20, "ignore_eos": True, "return_tokens": True}
        answer = client.simulate_post("/completion", json=body | {"temperature": 0}).json
        return answer["tokens"], answer["timings"]

    def act(client, action):
        answer = client.simulate_post(f"/slots/0?action={action}", json={"filename": "a"})
        assert answer.status_code == 200, answer.text

    client = serve_tiny(path, tmp_path)
    try:
        prompt = turns[0]
        drawn, _ = ask(client, prompt)
        for turn in turns[1:]:
            held = len(prompt) + len(drawn) - 1  # the last token is not fed
            prompt = prompt + drawn + turn
            drawn, told = ask(client, prompt)
            assert told["cache_n"] == held
            again, told = ask(client, prompt)  # drawn anew
            assert (again, told["cache_n"]) == (drawn, len(prompt) - 1)
        act(client, "save")
        drawn, _ = ask(client, prompt)
    finally:
        client.service.close()
    client = serve_tiny(path, tmp_path)
    try:
        act(client, "restore")
        again, told = ask(client, prompt)
        assert (again, told["cache_n"], told["prompt_n"]) == (drawn, len(prompt) - 1, 1)
        again, told = ask(client, prompt + drawn + turns[0])
        assert told["cache_n"] == len(prompt) + len(drawn) - 1
    finally:
        client.service.close()


# ---- 2 ----


def test_complaint_2_a_restored_slot_is_really_reused_after_a_restart(tmp_path):
    """Restoring said that it worked, and then everything was read again."""
    prompt = {"prompt": "hello world " * 9, "n_predict": 2, "logit_bias": BANNED}
    saved = tmp_path / "slots"
    saved.mkdir()
    first = Recorded(tmp_path, "-slot-save-path", str(saved))
    try:
        told = first.ask("/completion", prompt | {"id_slot": 0})
        known = told["tokens_cached"]
        assert first.ask("/slots/0?action=save", {"filename": "a"})["n_saved"] == known
    finally:
        first.service.close()
    second = Recorded(tmp_path, "-slot-save-path", str(saved))
    try:
        assert second.ask("/slots/1?action=restore", {"filename": "a"})["n_restored"] == known
        again = second.ask("/completion", prompt)
        assert again["id_slot"] == 1
        assert again["timings"]["prompt_n"] == 1
        assert again["timings"]["cache_n"] == told["tokens_evaluated"] - 1
    finally:
        second.service.close()


# ---- 6 ----


def test_complaint_6_openais_client_puts_a_streamed_call_together(served):
    """Ids came in the wrong place, names twice, indices not at all."""
    with openai.OpenAI(base_url=served.url + "/v1", api_key="x", timeout=PATIENCE) as client:
        with client.chat.completions.stream(
            model="m",
            messages=chat_body("json " + json.dumps(CALL))["messages"],
            tools=TOOLS,
            max_tokens=200,
        ) as events:
            final = events.get_final_completion()
        (call,) = final.choices[0].message.tool_calls
        assert final.choices[0].finish_reason == "tool_calls"
        assert call.id and call.type == "function" and call.function.name == "weather"
        assert json.loads(call.function.arguments)["city"] == "Lyon"


# ---- 7 ----


@pytest.mark.parametrize(
    "keywords",
    [
        {"type": "string", "maxLength": 10000},
        {"type": "string", "minLength": 3000, "maxLength": 3001},
        {"type": "string", "pattern": "^a{2,5000}$"},
        {"type": "string", "pattern": r"^\d{4}-\d\d$"},
        {"type": "string", "pattern": "(?=lookahead)x"},
        {"type": "string", "pattern": "("},
        {"type": "array", "items": {"type": "integer"}, "maxItems": 5000},
        {"type": "integer", "multipleOf": 7},
        {"type": "zork"},
        {"$ref": "http://example.com/schema"},
    ],
    ids=lambda keywords: json.dumps(keywords)[:50],
)
def test_complaint_7_a_schema_holds_or_is_refused_and_is_never_dropped(tiny, keywords):
    """Large bounds and patterns broke tools, or worse: the answer was free without a word."""
    schema = {"type": "object", "properties": {"a": keywords}, "required": ["a"]}
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 40, "seed": 1}
    body["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    answer = tiny.simulate_post(CHAT, json=body)
    if answer.status_code == 400:
        assert answer.json["error"]["type"] == "invalid_request_error"
        assert any(word in answer.json["error"]["message"] for word in ("#/", "schema", "grammar"))
        return
    assert answer.status_code == 200
    text = answer.json["choices"][0]["message"]["content"].lstrip()
    assert text.startswith("{"), text
    assert '"a"'.startswith(text[1:].lstrip()[:3])


# ---- 8 ----

NATIVE = {"prompt": "<user>forever\n<assistant>", "n_predict": -1}
OLLAMA = {"model": "m", "options": {"num_predict": -1}}
ENDLESS = [
    ("/completion", NATIVE),
    ("/api/chat", OLLAMA | {"messages": chat_body("forever")["messages"]}),
    ("/api/generate", OLLAMA | {"prompt": "forever"}),
    ("/v1/completions", {"prompt": "<user>forever\n<assistant>", "max_tokens": -1}),
]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("path", "asked"), ENDLESS, ids=[path for path, _ in ENDLESS])
def test_complaint_8_nothing_is_drawn_for_a_client_that_left(served, path, asked, streamed):
    """The processor kept busy for nobody. Waiting and reading are in test_hangups.py."""
    served.allow(0)
    connection = served.open(path, asked | {"stream": streamed})
    served.until_state(lambda s: s["held_back"])
    served.allow(5)
    served.until_state(lambda s: s["held_back"] and max(s["drawn"]) == 5)
    reset(connection)
    before = served.until_state(lambda s: s["given_up"] == 1)["passes"]
    served.allow(None)
    assert served.until_idle()["passes"] == before


def test_complaint_8_the_last_of_three_dialects_that_waits_leaves_too(served):
    holders = served.fill_slots(chat_body("forever", stream=True, max_tokens=-1))
    for path, asked in ENDLESS[:3]:
        waiting = served.open(path, asked)
        served.until_state(lambda s: s["busy"] == 3)
        waiting.close()
        served.until_state(lambda s: s["busy"] == 2)
    for holder in holders:
        holder.close()


# ---- 9 ----


def test_complaint_9_vectors_in_base64_are_the_same_floats(tiny):
    """openai's client asks for base64 unless told otherwise; floats read as that are garbage."""
    plain = tiny.ask("/v1/embeddings", {"model": "m", "input": "hello"})["data"][0]
    coded = tiny.ask("/v1/embeddings", {"input": "hello", "encoding_format": "base64"})["data"][0]
    decoded = np.frombuffer(base64.b64decode(coded["embedding"]), "<f4")
    assert decoded.tolist() == np.array(plain["embedding"], np.float32).tolist()


# ---- 10 ----


def test_complaint_10_usage_comes_once_alone_and_only_when_asked_for(served):
    """It came unasked, inside of a choice, or merged with the end."""
    for asked in ({}, {"stream_options": {}}, {"stream_options": {"include_usage": False}}):
        assert all("usage" not in chunk for chunk in stream(served, "hello", **asked))
    chunks = stream(served, "hello", stream_options={"include_usage": True})
    assert [("usage" in chunk, bool(chunk["choices"])) for chunk in chunks[-2:]] == [
        (False, True),
        (True, False),
    ]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"


# ---- 12 ----


def entries_of(served, text, **fields):
    asked = chat_body(text, logprobs=True, top_logprobs=1, **fields)
    choice = served.post(CHAT, asked)[1]["choices"][0]
    return choice["message"]["content"], choice["logprobs"]["content"]


def test_complaint_12_probabilities_stay_beside_their_texts(served):
    """They were missing, or shifted by characters of several tokens and by stop texts."""
    smile = "🙂".encode().hex()
    text, entries = entries_of(served, f"bytes 61{smile}62")
    assert text == "a🙂b"
    assert [entry["token"] for entry in entries] == ["a", "🙂", "b", ""]
    assert entries[1]["bytes"] == list("🙂".encode())
    text, entries = entries_of(served, "say one STOP two", stop=["STOP"])
    assert text == "one " == "".join(entry["token"] for entry in entries)
    assert entries[-1]["token"] == " "
    text, entries = entries_of(served, "say hi")
    assert [entry["token"] for entry in entries] == ["h", "i", ""]  # the end has an entry

    native = {"prompt": f"<user>bytes 61{smile}62\n<assistant>", "n_probs": 1}
    told = served.post("/completion", native)[1]["completion_probabilities"]
    assert [entry["token"] for entry in told] == ["a", "🙂", "b", ""]
    lines = served.request(
        "POST",
        "/api/chat",
        json.dumps(
            {
                "model": "m",
                "messages": chat_body(f"bytes 61{smile}62")["messages"],
                "logprobs": True,
            }
        ).encode(),
    )[2].splitlines()
    told = [entry for line in lines for entry in json.loads(line).get("logprobs", [])]
    assert [entry["token"] for entry in told] == ["a", "🙂", "b", ""]


def test_complaint_12_a_streams_entries_are_the_whole_answers(served):
    connection = served.open(CHAT, chat_body("say hi", logprobs=True, stream=True))
    body = receive(connection, lambda got: b"[DONE]" in got).decode()
    connection.close()
    streamed = [
        entry["token"]
        for line in body.splitlines()
        if line.startswith("data: {")
        for entry in (json.loads(line[6:])["choices"][0].get("logprobs") or {"content": []})[
            "content"
        ]
    ]
    assert streamed == [entry["token"] for entry in entries_of(served, "say hi")[1]]
