"""Bad input: each is a 4xx that names the field and the remedy, and the server serves on."""

import json
import socket

import pytest

from tests.server.conftest import PATIENCE, chat_body
from tests.server.test_chat import CHAT, RECORDED

USER = {"role": "user", "content": "hello"}
NOT_JSON = "the request body is not the JSON this endpoint reads: "


def messages(*given):
    return {"messages": list(given)}


def part(kind, **fields):
    return messages({"role": "user", "content": [{"type": kind, **fields}]})


CASES = [
    # not JSON
    (b"", NOT_JSON + "it is empty; send an object"),
    (b"{bad", NOT_JSON + "JSON is malformed"),
    (b'{"messages": [', NOT_JSON + "Input data was truncated"),
    (b"[]", NOT_JSON + "it is array, and an object is expected"),
    (b'"x"', NOT_JSON + "it is string, and an object is expected"),
    (b'{"messages": "\xff"}', NOT_JSON + "Invalid UTF-8"),
    (b"[" * 5000, NOT_JSON + "it is nested too deep"),
    (b'{"a":' * 1500, NOT_JSON + "it is nested too deep"),
    (b'{"seed": 1e999}', NOT_JSON + "Number out of range"),
    # messages
    ({}, "'messages' is required"),
    ({"messages": None}, "'messages' is required"),
    ({"messages": "x"}, "Expected 'messages' to be an array"),
    (
        {"messages": []},
        "a conversation with no message: 'messages' is empty, and at least one is needed, such as ",
    ),
    (
        chat_body("a", response_format={"type": "json_schema", "json_schema": "x"}),
        "Field 'response_format.json_schema': type must be object, but is string",
    ),
    (
        chat_body("a", response_format={"type": "json_schema", "json_schema": {"schema": "x"}}),
        "Field 'response_format.json_schema.schema': type must be object, but is string",
    ),
    (
        chat_body("a", response_format={"type": "json_object", "schema": [1]}),
        "Field 'response_format.schema': type must be object, but is array",
    ),
    (
        chat_body("a", response_format={"type": "json_schema", "json_schema": {"name": "x"}}),
        "response_format is json_schema and names no schema: send ",
    ),
    (
        chat_body("a", best_of=True),
        '"best_of" is not served: leave it out or send 1',
    ),
    (messages(5), "message 0 is number, and an object is expected"),
    (messages({"content": "x"}), "message 0: 'role' must be a string"),
    (messages({"role": 5, "content": "x"}), "message 0: 'role' must be a string"),
    (
        messages(USER, {"role": "narrator", "content": "x"}),
        'message 1 has role "narrator"; the roles are system, developer, user, assistant, model, '
        "tool",
    ),
    (
        messages({"role": "user"}),
        "All non-assistant messages must contain 'content': message 0 has none",
    ),
    (
        messages({"role": "assistant"}),
        "Assistant message must contain either 'content' or 'tool_calls'!",
    ),
    (
        messages({"role": "user", "content": 5}),
        "Expected 'content' to be a string or an array: message 0 has number",
    ),
    (
        messages({"role": "user", "content": {}}),
        "Expected 'content' to be a string or an array: message 0 has object",
    ),
    (
        messages({"role": "user", "content": [5]}),
        "message 0: a part of its content is number, not an object",
    ),
    (
        part("foo"),
        'unsupported content[].type: message 0 has "foo"; the types are text, image_url, ',
    ),
    (part("text"), "message 0: a part of type text needs a 'text' that is a string"),
    (
        part("image_url", image_url={"url": "https://example.com/a.png"}),
        "message 0: this server does not fetch pictures over the network; "
        "send the bytes as a data: URI",
    ),
    (
        part("image_url", image_url={"url": "data:image/png;base64,AAAA"}),
        "image input is not supported - hint: if this is unexpected, you may need to provide the "
        "mmproj",
    ),
    (
        part("input_audio", input_audio={"data": "http://example.com/a.wav"}),
        "message 0: this server does not fetch audio over the network; send the bytes as base64",
    ),
    (part("input_audio", input_audio={}), "audio input is not supported - hint: "),
    (part("video_url", video_url={"url": "data:video/mp4;base64,AAAA"}), "video input is not"),
    (
        messages({"role": "tool", "content": "x", "tool_call_id": "a"}),
        "message 0 is a tool result, and a result answers a call that came before it",
    ),
    (
        messages(USER, {"role": "assistant", "tool_calls": [{}]}),
        "message 1: a tool call with no function name",
    ),
    (
        messages(USER, *[{"role": "assistant", "content": "yo"}] * 2),
        "Cannot have 2 or more assistant messages at the end of the list.",
    ),
    (
        messages({"role": "assistant", "content": "yo"}),
        "a conversation cannot begin with the answer: no message comes before it",
    ),
    (chat_body("bad template"), "the template says: this conversation makes no sense"),
    # types and limits
    (chat_body("a", stream="x"), "Field 'stream': type must be boolean, but is string"),
    (chat_body("a", model=5), "Field 'model': type must be string, but is number"),
    (chat_body("a", max_tokens="5"), "Field 'max_tokens': type must be number, but is string"),
    (chat_body("a", max_tokens=True), "Field 'max_tokens': type must be number, but is boolean"),
    (chat_body("a", temperature="x"), "Field 'temperature': type must be number, but is string"),
    (chat_body("a", top_k=[]), "Field 'top_k': type must be number, but is array"),
    (chat_body("a", seed={}), "Field 'seed': type must be number, but is object"),
    (
        chat_body("a", cache_prompt="no"),
        "Field 'cache_prompt': type must be boolean, but is string",
    ),
    (
        chat_body("a", stream_options={"include_usage": 1}),
        "Field 'stream_options.include_usage': type must be boolean, but is number",
    ),
    (
        chat_body("a", max_tokens=-2),
        "Field 'max_tokens': Value must be between -1 <= value <= 2147483647, but got -2",
    ),
    (
        chat_body("a", n_predict=2**31),
        "Field 'n_predict': Value must be between -1 <= value <= 2147483647, but got 2147483648",
    ),
    (
        chat_body("a", id_slot=2),
        "Field 'id_slot': Value must be between -1 <= value <= 1, but got 2",
    ),
    (chat_body("a", n=0), "Field 'n': Value must be between 1 <= value <= 2147483647, but got 0"),
    (
        chat_body("a", repeat_last_n=-1),
        "Field 'repeat_last_n': Value must be between 0 <= value <= 2147483647, but got -1",
    ),
    (
        chat_body("a", repeat_penalty=0),
        "Failed to initialize samplers: penalty_repeat must be finite and greater than 0",
    ),
    (
        chat_body("a", max_tokens=1.5),
        "Field 'max_tokens': Value must be a whole number, but got 1.5",
    ),
    (chat_body("a", n=1.5), "Field 'n': Value must be a whole number, but got 1.5"),
    (
        chat_body("a", max_tokens=10**30),
        "Field 'max_tokens': Value must be between -1 <= value <= 2147483647, but got 1000000",
    ),
    (chat_body("a", top_k=0.5), "Field 'top_k': Value must be a whole number, but got 0.5"),
    (
        chat_body("a", temperature=10**400),
        "Field 'temperature': Value must be finite, but got inf",
    ),
    (chat_body("a", stop=5), "Field 'stop': it must be a text or a list of texts, not 5"),
    (
        chat_body("a", stop=["b", None]),
        "Field 'stop': every element must be a text, and one is null",
    ),
    (
        chat_body("a", stop=["x"] * 300),
        "Field 'stop': 300 texts, and at most 256 are looked for",
    ),
    (
        chat_body("a", logit_bias=5),
        "Field 'logit_bias': it is 5; send {id or text: bias} or [[id or text, bias], …]",
    ),
    (chat_body("a", logit_bias={"260": 1}), "Field 'logit_bias': 260: ids are 0 to 259"),
    (chat_body("a", samplers={}), "Field 'samplers': type must be array, but is object"),
    (
        chat_body("a", samplers=["top_k", "tpo_p"]),
        "Field 'samplers': \"tpo_p\" is none; the samplers are penalties, dry, top_n_sigma, ",
    ),
    (
        chat_body("a", reasoning_effort=5),
        "Field 'reasoning_effort': type must be string, but is number",
    ),
    (
        chat_body("a", reasoning_effort="hihg"),
        "Field 'reasoning_effort': \"hihg\" is none of none, minimal, low, medium, high, ",
    ),
    (
        messages({"role": "user", "content": "x", "name": 5}),
        "message 0: 'name' must be a string, it is number",
    ),
    (
        messages(USER, {"role": "assistant", "tool_calls": [{"id": 5, "function": {"name": "f"}}]}),
        "message 1: the 'id' of a tool call must be a string",
    ),
    # what is known and not served
    (
        chat_body("a", n=3),
        "n is 3: this server draws at most 2 answers; start it with a larger -parallel for more",
    ),
    (chat_body("a", prediction={"type": "content"}), '"prediction" is not served'),
    *(
        (
            chat_body("a", chat_template_kwargs={name: value}),
            f'"chat_template_kwargs" cannot hold "{name}": the server gives that to the template '
            "itself, from the request's own fields",
        )
        for name, value in {
            "messages": [],
            "tools": [],
            "self": 1,
            "add_generation_prompt": True,
        }.items()
    ),
    (
        chat_body("a", chat_template_kwargs={"enable_thinking": "yes"}),
        'invalid type for "enable_thinking" (expected boolean, got string)',
    ),
    (chat_body("a", reasoning_format="zork"), "Unknown reasoning format: zork"),
]


@pytest.mark.parametrize(("body", "message"), CASES, ids=[m[-60:] for _, m in CASES])
def test_a_wrong_request_is_a_400_that_names_what_is_wrong(served, body, message):
    status, answer = served.post(CHAT, body)
    assert status == 400
    error = answer["error"]
    assert error["message"].startswith(message)
    assert {k: error[k] for k in error if k != "message"} == {
        "code": 400,
        "type": "invalid_request_error",
        "param": None,
    }
    assert served.chat("hello")[0] == 200


WRONG_PROMPT = '"prompt" elements must be a string, a list of tokens, '
PROMPTS = [
    (None, '"prompt" is required'),
    ([], '"prompt" must not be empty'),
    ([[]], '"prompt" must not be empty'),
    ({}, WRONG_PROMPT),
    ({"prompt_string": 5}, WRONG_PROMPT),
    (5, WRONG_PROMPT),
    (True, WRONG_PROMPT),
    ([None], WRONG_PROMPT),
    ([["a", 1.5]], WRONG_PROMPT),
    ([1, 260], "Prompt contains invalid tokens"),
    ([-1], "Prompt contains invalid tokens"),
    (
        ["a"] * 1000,
        "this request asks for 1000 answers, and the server takes at most 4 at a time",
    ),
]


@pytest.mark.parametrize(("prompt", "message"), PROMPTS, ids=[m[-60:] for _, m in PROMPTS])
def test_what_is_no_prompt_is_a_400(served, prompt, message):
    for path in ("/v1/completions", "/completion"):
        status, answer = served.post(path, {"prompt": prompt})
        assert status == 400
        assert answer["error"]["message"].startswith(message)
        assert answer["error"]["type"] == "invalid_request_error"


def test_answers_to_several_prompts_count_together(served):
    status, answer = served.post("/v1/completions", {"prompt": ["a"] * 3, "n": 2})
    assert status == 400
    assert "6 answers, and the server takes at most 4" in answer["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_as_long_as_the_context_is_refused_with_the_counts(served, stream):
    fits = 256 - 1 - len("<user>say \n<assistant>")
    assert served.chat("say " + "x" * fits)[0] == 200
    status, answer = served.chat("say " + "x" * (fits + 1), stream=stream)
    recorded = RECORDED["too_long"]["error"]
    assert status == 400
    assert answer["error"] == {
        "code": 400,
        "message": recorded["message"].replace("314", "256"),
        "type": recorded["type"],
        "param": None,
        "n_prompt_tokens": 256,
        "n_ctx": 256,
    }


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nope"),
        ("GET", CHAT),
        ("PUT", "/v1/completions"),
        ("POST", "/health"),
        ("OPTIONS", CHAT),
        ("GET", "/v1/models/"),
        ("GET", "/v1/embeddings"),
    ],
)
def test_an_unknown_path_or_method_is_file_not_found(served, method, path):
    status, headers, body = served.request(method, path, b"{}")
    assert status == 404
    assert headers["Content-Type"] == "application/json; charset=utf-8"
    assert json.loads(body)["error"] == RECORDED["not_found"]["error"] | {"param": None}


def test_a_body_over_the_limit_is_a_413_that_names_the_flag(served):
    status, answer = served.chat("x" * 9000)
    assert status == 413
    assert answer["error"]["message"] == (
        "the request body is larger than 8KiB: "
        "send less, or start the server with a larger -max-body"
    )
    assert answer["error"]["code"] == 413


def chunked(served, *chunks):
    """Send a body in chunks; the status and the body of the answer."""
    with socket.create_connection((served.host, served.port), PATIENCE) as connection:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        for chunk in (*chunks, b""):
            connection.sendall(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        response = b""
        while b"\r\n\r\n" not in response or not response.rstrip().endswith(b"}"):
            received = connection.recv(65536)
            assert received, response
            response += received
    head, _, body = response.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_a_chunked_body_is_read_whole(served):
    body = json.dumps(chat_body("hello")).encode()
    status, answer = chunked(served, body[:10], body[10:])
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == "you said: hello"


def test_a_chunked_body_over_the_limit_is_a_413(served):
    status, answer = chunked(served, *[b" " * 1000] * 9)
    assert status == 413
    assert "-max-body" in answer["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("text", "said"), [("boom", "RuntimeError: the executor broke"), ("nan please", "inite")]
)
def test_a_failing_pass_is_a_500_or_an_error_frame_and_the_server_serves_on(
    served, text, said, stream
):
    if not stream:
        status, answer = served.chat(text)
        assert status == 500
    else:
        status, _, body = served.request("POST", CHAT, json.dumps(chat_body(text, stream=True)))
        if status == 200:  # the slot was held before the pass failed
            assert b"[DONE]" not in body
            body = body.strip().split(b"\n\n")[-1].removeprefix(b"data: ")
        answer = json.loads(body)
    assert said in answer["error"]["message"]
    assert answer["error"]["type"] == "server_error"
    assert not any(served.until_idle()["slots"])
    assert served.chat("hello")[1]["choices"][0]["message"]["content"] == "you said: hello"
