"""Requests with one wrong value in them, and what reads a request without a server."""

import contextlib

from golem_server import chat
from golem_server.app import EXPECTED
from golem_server.schema import ChatRequest, read_request
from tests.server.fake import FakeModel

JUNK = [None, True, 0, -5, 1e300, "", "x", [], [None], [[]], {}, {"type": []}, {"type": "text"}]


def spoiled(value, junk):
    """The value with junk in place of each of its parts, one after another, and of itself."""
    if isinstance(value, dict):
        for key in value:
            for part in spoiled(value[key], junk):
                yield value | {key: part}
            yield value | {key: junk}
    elif isinstance(value, list):
        for place in range(len(value)):
            for part in spoiled(value[place], junk):
                yield [*value[:place], part, *value[place + 1 :]]
            yield [*value[:place], junk, *value[place + 1 :]]


def serve_or_refuse(chat_body, body, junk):
    """Reads every spoiled request, as far as one is checked before it waits for a slot.

    chat_body: makes a chat request of one. What is refused is refused with an expected error.
    """
    model = FakeModel("fake.gguf", 1, 4096)
    for request in spoiled(body, junk):
        with contextlib.suppress(*EXPECTED):
            chat.prepare(model, read_request(ChatRequest, chat_body(request)))
