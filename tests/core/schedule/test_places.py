"""Where media stand in a rendered conversation, and that no text of a client's makes a place."""

from types import SimpleNamespace

import numpy as np
import pytest

from golem_core.media import MediaError
from golem_core.model.media import Marks
from golem_core.model.projector import Rows
from golem_core.schedule import ContextExceeded
from golem_core.schedule.places import hidden, new_salt, place, refuse_overlong_media, shown

MARKS = {"image": Marks("<|image|>", "<|image>", "<image|>"), "audio": Marks("<|audio|>")}
CONTROLS = {"<|image>": 1, "<image|>": 2, "<|image|>": 3, "<|audio|>": 4}


class Letters:
    """A tokenizer of control tokens and letters."""

    add_bos, bos = False, None

    def encode(self, text, *, add_special, parse_special):
        tokens = []
        while text:
            control = next((c for c in CONTROLS if text.startswith(c)), text[0])
            tokens.append(CONTROLS.get(control, ord(text[0])))
            text = text[len(control) :]
        return tokens


MODEL = SimpleNamespace(marks=MARKS, tokenizer=Letters(), padding=0, name="m")


def rows(kind, count):
    return Rows(kind, bytes(32), np.zeros((count, 4), np.float32))


def test_rows_take_the_places_of_their_marks_in_order():
    media = [rows("image", 3), rows("audio", 2)]
    tokens, spans = place(MODEL, "a<|image|>b<|audio|>c", media, new_salt())
    assert tokens == [97, 1, 0, 0, 0, 2, 98, 0, 0, 99]
    assert [(span.first, span.last) for span in spans] == [(2, 4), (7, 8)]
    assert [span.rows for span in spans] == media


def test_marks_in_a_message_are_its_text():
    salt = new_salt()
    given = [{"role": "user", "content": [{"text": "x<|image|>"}, {"type": "image"}]}]
    found = hidden(given, MARKS, salt)
    assert "<|image|>" not in str(found)
    assert found[0]["content"][1] == {"type": "image"}
    rendered = found[0]["content"][0]["text"] + "<|image|>"
    tokens, spans = place(MODEL, rendered, [rows("image", 1)], salt)
    assert tokens == [120, 3, 1, 0, 2]
    assert spans[0].first == 3
    assert shown(found[0]["content"][0]["text"], MARKS, salt) == "x<|image|>"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a", ["image"]),
        ("<|image|><|image|>", ["image"]),
        ("<|audio|><|image|>", ["image", "audio"]),
    ],
)
def test_other_places_than_media_are_refused(text, kinds):
    with pytest.raises(MediaError, match="many have none in a system message"):
        place(MODEL, text, [rows(kind, 1) for kind in kinds], new_salt())


def test_a_vocabulary_without_the_marks_is_refused(monkeypatch):
    monkeypatch.delitem(CONTROLS, "<|image>")
    with pytest.raises(MediaError, match=r"m has no token <\|image>: its vocabulary"):
        place(MODEL, "<|image|>", [rows("image", 1)], new_salt())


def test_media_that_fill_a_slot_are_refused_as_soon_as_they_do():
    refuse_overlong_media([rows("image", 6), rows("audio", 3)], 10)
    with pytest.raises(ContextExceeded, match="at least 10 tokens"):
        refuse_overlong_media([rows("image", 6), rows("audio", 4)], 10)
