"""A picture through a running server, for a delta net: the template's own marks, states."""

import base64

import numpy as np
import openai
import pytest

from golem_core.formats.gguf import GGUF
from tests.plugins import tiny
from tests.plugins.projectors import picture, write_projector
from tests.server.conftest import PATIENCE, Running

MARKS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeing")
    plain = tiny.write(folder / "plain.gguf", "qwen35", "F32")
    with GGUF.open(plain) as file:
        texts = list(file.metadata["tokenizer.ggml.tokens"])
        kinds = np.array(file.metadata["tokenizer.ggml.token_type"], np.int32)
    for i, mark in enumerate(MARKS):
        texts[470 + i], kinds[470 + i] = mark, 3
    keys = {"tokenizer.ggml.tokens": texts, "tokenizer.ggml.token_type": kinds}
    model = tiny.rewrite(plain, folder / "model.gguf", keys)
    running = Running(
        "golem-server",
        GOLEM_MODEL=str(model),
        GOLEM_MMPROJ=str(write_projector(folder / "mmproj.gguf", 256, "qwen35")),
        GOLEM_CONTEXT="2048",
        GOLEM_THREADS="2",
        GOLEM_IMAGE_MIN_TOKENS="2",
        GOLEM_IMAGE_MAX_TOKENS="12",
    )
    running.ready()
    yield running
    running.stop()


def ask(server, *parts, **more):
    with openai.OpenAI(
        base_url=server.url + "/v1", api_key="x", timeout=PATIENCE, max_retries=0
    ) as client:
        messages = [{"role": "user", "content": list(parts)}]
        settings = {"temperature": 0, "max_tokens": 8} | more
        made = client.chat.completions.create(model="any", messages=messages, **settings)
        return list(made) if settings.get("stream") else made


def text(words):
    return {"type": "text", "text": words}


def seen(data):
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def test_a_picture_takes_its_rows_between_the_marks_that_the_template_writes(server):
    start = len(server.log)
    one = ask(server, text("look"), seen(picture(1)), text("now"))
    line = server.wait_for_line(r"positions: (\d+) of pictures", start)
    rows = int(line.group(1))
    assert 2 <= rows <= 12
    words = ask(server, text("look"), text("now"))
    between = 1  # the line break where two texts follow each other
    marks = 2  # the third stands for the rows
    assert one.usage.prompt_tokens == words.usage.prompt_tokens - between + marks + rows


def test_the_same_picture_gives_the_same_answer_streamed_too_and_another_one_another(server):
    parts = text("look"), seen(picture(2)), text("now")
    first, again = (ask(server, *parts, max_tokens=16) for _ in range(2))
    assert first.choices[0].message.content == again.choices[0].message.content
    chunks = ask(server, *parts, max_tokens=16, stream=True)
    streamed = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert streamed == first.choices[0].message.content
    other = ask(server, text("look"), seen(picture(3)), text("now"), max_tokens=16)
    assert other.choices[0].message.content != first.choices[0].message.content


def test_an_answer_that_begins_in_a_thought_leaves_as_one(server):
    """A model of random weights does not end its thought: all of it is one."""
    asked = {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}
    made = ask(server, text("look"), seen(picture(1)), **asked).choices[0].message
    assert made.content in (None, "")
    assert made.reasoning_content
