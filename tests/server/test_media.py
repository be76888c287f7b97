"""Pictures and sound through a running server: openai's and anthropic's clients, every dialect."""

import base64
import os

import anthropic
import openai
import pytest

from tests.plugins import tiny
from tests.plugins.projectors import picture, recording, write_projector, write_seeing_model
from tests.server.conftest import PATIENCE, Running

CHAT = "/v1/chat/completions"
LIMITS = {
    "GOLEM_IMAGE_MIN_TOKENS": "2",
    "GOLEM_IMAGE_MAX_TOKENS": "12",
    "GOLEM_MEDIA_MAX_SECONDS": "5",
    "GOLEM_MEDIA_MAX_BYTES": "200KiB",
    "GOLEM_MEDIA_MAX_PIXELS": "100000",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeing")
    plain = tiny.write(folder / "plain.gguf", "gemma4-e2b", "F32")
    (folder / "pictures").mkdir()
    (folder / "pictures" / "cat.png").write_bytes(picture(1))
    (folder / "pictures" / "my/holiday/photos").mkdir(parents=True)
    (folder / "pictures" / "my/holiday/photos/00").write_bytes(picture(1))  # reads as base64
    (folder / "secret.png").write_bytes(picture(2))
    (folder / "pictures" / "out.png").symlink_to(folder / "secret.png")
    write_seeing_model(folder / "model.gguf", plain)
    write_projector(folder / "mmproj.gguf", 256)
    return folder


@pytest.fixture(scope="module")
def server(files):
    running = Running(
        "golem-server",
        GOLEM_MODEL=str(files / "model.gguf"),
        GOLEM_MMPROJ=str(files / "mmproj.gguf"),
        GOLEM_MEDIA_ROOT=str(files / "pictures"),
        GOLEM_CONTEXT="2048",
        GOLEM_MAX_BODY="4MiB",
        GOLEM_THREADS="2",
        **LIMITS,
    )
    running.ready()
    yield running
    running.stop()


@pytest.fixture
def client(server):
    url = server.url + "/v1"
    with openai.OpenAI(base_url=url, api_key="x", timeout=PATIENCE, max_retries=0) as made:
        yield made


def b64(data):
    return base64.b64encode(data).decode()


def seen(data, kind="png"):
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{b64(data)}"}}


def heard(data):
    return {"type": "input_audio", "input_audio": {"data": b64(data), "format": "wav"}}


def text(words):
    return {"type": "text", "text": words}


def user(*parts):
    return {"role": "user", "content": list(parts)}


BROKEN = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
EARLY = {  # requests with a picture that cannot be decoded, and what else is wrong with them
    "n": (CHAT, {"messages": [user(seen(b"no picture"))], "n": 9}, "n is 9"),
    "slot": (CHAT, {"messages": [user(seen(b"no picture"))], "id_slot": 7}, "id_slot"),
    "samplers": (CHAT, {"messages": [user(seen(b"no picture"))], "samplers": [1]}, "samplers"),
    "stop": (CHAT, {"messages": [user(seen(b"no picture"))], "stop": [1]}, "stop"),
    "messages": (
        "/v1/messages",
        {"messages": [user(BROKEN)], "max_tokens": 5, "stop_sequences": [1]},
        "stop",
    ),
    "responses": (
        "/v1/responses",
        {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "input_image",
                            "image_url": "data:image/png;base64," + b64(b"no picture"),
                        }
                    ],
                }
            ],
            "samplers": [1],
        },
        "samplers",
    ),
    "ollama": (
        "/api/chat",
        {
            "model": "x",
            "messages": [{"role": "user", "content": "x", "images": [b64(b"no picture" * 9)]}],
            "options": {"stop": ["a", 1]},
        },
        "stop",
    ),
}


@pytest.mark.parametrize("case", EARLY)
def test_what_costs_nothing_to_refuse_is_refused_before_pictures_are_looked_at(server, case):
    path, body, said = EARLY[case]
    status, answer = server.post(path, body)
    assert status == 400
    error = answer["error"]
    message = error if isinstance(error, str) else error["message"]
    assert said in message and "picture" not in message, message


def ask(client, *messages, **more):
    more = {"temperature": 0, "max_tokens": 8} | more
    return client.chat.completions.create(model="any", messages=list(messages), **more)


def test_a_picture_and_a_recording_whole_and_streamed_through_openais_client(client, server):
    turn = user(text("what is"), seen(picture(3)), text("and"), heard(recording(4)), text("?"))
    start = len(server.log)
    whole = ask(client, turn)
    assert whole.usage.completion_tokens > 0
    chunks = list(ask(client, turn, stream=True, stream_options={"include_usage": True}))
    streamed = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert streamed == whole.choices[0].message.content
    usage = chunks[-1].usage
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1
    line = server.wait_for_line(r"positions: \d+ of pictures, \d+ of sound", start)
    pictures, sound = (int(n) for n in line.group(0).split() if n.isdigit())
    assert 2 <= pictures <= 12
    assert sound == 15  # 0.6 s, one for 40 ms
    words = ask(client, user(text("what is"), text("and"), text("?")))
    marks = 4
    assert whole.usage.prompt_tokens == words.usage.prompt_tokens - 2 + pictures + sound + marks


def test_another_picture_gives_another_answer_and_parts_the_prefix(client):
    def answer(data):
        return ask(client, user(text("look"), seen(data), text("now")), max_tokens=24)

    one, two, again = answer(picture(5)), answer(picture(6)), answer(picture(5))
    assert one.choices[0].message.content == again.choices[0].message.content
    assert one.choices[0].message.content != two.choices[0].message.content
    cached = two.usage.prompt_tokens_details.cached_tokens
    assert cached < two.usage.prompt_tokens - 4


def test_media_of_earlier_turns_stay_in_the_conversation(client):
    first = user(seen(picture(7)), text("a"))
    answer = ask(client, first)
    said = {"role": "assistant", "content": answer.choices[0].message.content}
    more = user(text("b"), heard(recording(8)), seen(picture(9)))
    turn = ask(client, first, said, more)
    assert turn.usage.prompt_tokens > answer.usage.prompt_tokens + 15
    assert turn.usage.prompt_tokens_details.cached_tokens > 10
    cold = ask(client, first, said, more, extra_body={"cache_prompt": False})
    assert cold.choices[0].message.content == turn.choices[0].message.content


def test_every_way_to_send_a_picture_is_the_same_picture(client, server):
    """A data: URI, bare base64, base64 of the URL alphabet, a file below the media root."""
    plain = b64(picture(1))
    ways = [
        f"data:image/png;base64,{plain}",
        f"data:image/jpeg;charset=x;base64,{plain}",  # the bytes say what it is
        plain,
        plain.replace("+", "-").replace("/", "_").rstrip("="),
        "file://cat.png",
        "cat.png",
        "/cat.png",
        "my/holiday/photos/00",
    ]
    answers = [
        ask(client, user({"type": "image_url", "image_url": {"url": way}}, text("x")))
        for way in ways
    ]
    assert len({a.choices[0].message.content for a in answers}) == 1
    assert len({a.usage.prompt_tokens for a in answers}) == 1
    status, body = server.post(
        CHAT, {"messages": [user({"type": "image_url", "image_url": plain})], "max_tokens": 1}
    )
    assert status == 200, body


def test_a_text_that_spells_a_mark_is_no_place_for_a_picture(client):
    """What a client writes between pictures stays text, also where it looks like one's place."""
    turn = user(text("the mark <|image|> and"), seen(picture(1)), text("<|audio|>"))
    assert ask(client, turn).usage.completion_tokens > 0


def test_anthropics_client_sends_pictures_in_messages_and_results_of_tools(server):
    source = {"type": "base64", "media_type": "image/png", "data": b64(picture(1))}
    block = {"type": "image", "source": source}
    with anthropic.Anthropic(
        base_url=server.url, api_key="x", timeout=PATIENCE, max_retries=0
    ) as client:
        messages = [{"role": "user", "content": [block, text("x")]}]
        counted = client.messages.count_tokens(model="any", messages=messages)
        answer = client.messages.create(model="any", max_tokens=8, messages=messages)
        usage = answer.usage
        assert usage.input_tokens + usage.cache_read_input_tokens == counted.input_tokens
        tools = [{"name": "look", "input_schema": {"type": "object", "properties": {}}}]
        call = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "a", "content": [text("here"), block]}
        answer = client.messages.create(
            model="any",
            max_tokens=4,
            tools=tools,
            messages=[
                {"role": "user", "content": "look"},
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]},
            ],
        )
        assert answer.usage.output_tokens > 0


def test_responses_take_pictures_recordings_and_files_of_either(client, server):
    sound = b64(recording(4))
    parts = [
        {"type": "input_image", "image_url": f"data:image/png;base64,{b64(picture(1))}"},
        {"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}},
        {"type": "input_file", "filename": "a.wav", "file_data": f"data:audio/wav;base64,{sound}"},
        {"type": "input_text", "text": "x"},
    ]
    given = {"model": "any", "input": [{"role": "user", "content": parts}]}
    answer = client.responses.create(**given, max_output_tokens=4)
    assert answer.usage.input_tokens > 2 * 15
    status, counted = server.post("/v1/responses/input_tokens", given)
    assert (status, counted["input_tokens"]) == (200, answer.usage.input_tokens)


def test_ollamas_images_are_pictures(server):
    body = {
        "model": "any",
        "messages": [{"role": "user", "content": "x", "images": [b64(picture(1))]}],
        "options": {"num_predict": 4, "temperature": 0},
        "stream": False,
    }
    status, told = server.post("/api/chat", body)
    assert status == 200, told
    without = server.post("/api/chat", body | {"messages": [{"role": "user", "content": "x"}]})[1]
    assert told["prompt_eval_count"] >= without["prompt_eval_count"] + 2
    (listed,) = server.get("/api/tags")[1]["models"]
    assert {"vision", "audio"} <= set(listed["capabilities"])


REFUSED = [
    (
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        "message 0: this server does not fetch pictures over the network; send the bytes as a "
        "data: URI",
    ),
    (
        {"type": "image_url", "image_url": {}},
        "message 0: a part of type image_url needs a 'url' that is a string",
    ),
    (
        {"type": "image_url", "image_url": {"url": "data:image/png;base64"}},
        "message 0: Invalid uri-encoded base64 value",
    ),
    (
        {"type": "image_url", "image_url": {"url": "data:text/plain;base64,AAAA"}},
        "message 0: Invalid uri format: data:text/plain;base64",
    ),
    (
        {"type": "image_url", "image_url": {"url": "data:image/png,AAAA"}},
        "message 0: uri must be base64 encoded",
    ),
    (
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,????"}},
        "message 0: Invalid base64 value",
    ),
    (seen(picture(1)[:900]), "message 0: a picture that cannot be decoded"),
    (seen(b"no picture at all"), "message 0: not a picture of a known kind; PNG, JPEG, WebP, GIF"),
    (seen(picture(1, 400, 300, "JPEG")), "message 0: a picture of 400 x 300 pixels: 0.1 million"),
    (seen(bytes(300_000)), "message 0: a picture of 0.3 MB, and 0.2 MB is the most"),
    (heard(b"no recording"), "message 0: a recording that cannot be decoded"),
    (heard(recording(1, 6.0)), "message 0: a recording of more than 5 seconds"),
    (
        {"type": "image_url", "image_url": {"url": "file://../secret.png"}},
        "message 0: there is no such picture below -media-root",
    ),
    ({"type": "image_url", "image_url": {"url": "out.png"}}, "message 0: there is no such picture"),
    ({"type": "image_url", "image_url": {"url": "gone.png"}}, "message 0: there is no such pict"),
    ({"type": "image_url", "image_url": {"url": "."}}, "message 0: there is no such picture"),
    ({"type": "image_url", "image_url": {"url": "a\0.png"}}, "message 0: there is no such picture"),
    (
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
        "video input is not supported - hint: if this is unexpected, you may need to provide the "
        "mmproj",
    ),
]


@pytest.mark.parametrize(("part", "message"), REFUSED, ids=[m[:60] for _, m in REFUSED])
def test_what_cannot_be_taken_is_a_400_that_says_why_before_a_slot_is_taken(part, message, server):
    start = len(server.log)
    status, body = server.post(CHAT, {"messages": [user(text("x"), part)]})
    assert status == 400
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["message"].startswith(message)
    assert " slot " not in server.wait_for_line(r"POST /v1/chat.*", start).group(0)


def test_an_answer_holds_no_pictures(server):
    body = {"messages": [user(text("x")), {"role": "assistant", "content": [seen(picture(1))]}]}
    status, told = server.post(CHAT, body)
    assert status == 400
    assert "message 1: a message of the assistant holds no pictures" in told["error"]["message"]


def test_a_prompt_whose_pictures_do_not_fit_is_refused(server):
    turn = user(*[heard(recording(5, 4.9, rate=8000))] * 17)
    status, told = server.post(CHAT, {"messages": [turn]})
    assert status == 400
    assert told["error"]["type"] == "exceed_context_size_error"


def test_no_more_pictures_are_looked_at_than_fit(server):
    """A file may be named thousands of times in a few bytes each."""
    named = [{"type": "image_url", "image_url": {"url": "cat.png"}}] * 2100
    status, told = server.post(CHAT, {"messages": [user(*named)]})
    assert (status, told["error"]["type"]) == (400, "exceed_context_size_error")


def test_folders_that_are_named_leave_no_descriptor_open(server):
    folder = f"/proc/{server.process.pid}/fd"
    part = {"type": "image_url", "image_url": {"url": "."}}
    server.post(CHAT, {"messages": [user(part)]})
    before = len(os.listdir(folder))
    for _ in range(20):
        assert server.post(CHAT, {"messages": [user(part)]})[0] == 400
    assert len(os.listdir(folder)) < before + 10


def test_a_picture_where_the_template_has_no_place_for_one_is_refused(server):
    system = {"role": "system", "content": [seen(picture(1)), text("x")]}
    status, told = server.post(CHAT, {"messages": [system, user(text("a"))]})
    assert status == 400
    assert "0 places for the conversation's 1 pictures" in told["error"]["message"]
    assert "send them in the user's" in told["error"]["message"]


def test_what_a_projector_can_is_told(server):
    status, props = server.get("/props")
    assert status == 200
    assert {k: props["modalities"][k] for k in ("vision", "audio")} == {
        "vision": True,
        "audio": True,
    }


def test_without_a_root_no_file_is_read_and_without_ears_nothing_is_heard(files):
    eyes = write_projector(files / "eyes.gguf", 256, without="audio")
    server = Running(
        "golem-server",
        GOLEM_MODEL=str(files / "model.gguf"),
        GOLEM_MMPROJ=str(eyes),
        GOLEM_MAX_BODY="1MiB",
        **LIMITS,
    )
    server.ready()
    for part, said in (
        (
            {"type": "image_url", "image_url": {"url": "cat.png"}},
            "message 0: this server reads no files; start it with -media-root, or send a data: URI",
        ),
        (heard(recording(1)), "audio input is not supported - hint"),
    ):
        status, body = server.post(CHAT, {"messages": [user(part)]})
        assert (status, said in body["error"]["message"]) == (400, True), body
    body = {"messages": [user(seen(picture(1)))], "max_tokens": 1}
    assert server.post(CHAT, body)[0] == 200
    server.stop()


def test_a_projector_of_another_width_ends_the_start_with_its_name(files):
    narrow = write_projector(files / "narrow.gguf", 72)
    running = Running(
        "golem-server", GOLEM_MODEL=str(files / "model.gguf"), GOLEM_MMPROJ=str(narrow)
    )
    running.wait_for_line(r"narrow\.gguf: the projector makes rows of 72 values .* not a pair")
    assert running.process.wait(PATIENCE) == 1
    running.stop()
