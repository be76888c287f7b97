"""Where the last message of a conversation begins in its prompt."""

import pytest

from golem_core.schedule.ending import ending
from golem_core.text.errors import TemplateError
from tests.core.schedule.fakes import FakeModel


class Merging:
    """A tokenizer of bytes, and of pairs of line ends."""

    add_bos, bos = False, None

    def encode(self, text, add_special, parse_special):
        return [256 if part == "\n\n" else ord(part) for part in _parts(text)]


def _parts(text):
    while text:
        part = text[: 2 if text.startswith("\n\n") else 1]
        yield part
        text = text[len(part) :]


def render(messages):
    return "".join(f"<{m['role']}>\n{m['content']}" for m in messages) + "<assistant>"


def said(*contents):
    roles = ("system", "user", "assistant", "user")
    return [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]


def found(messages, *, recurrent=True, render=render, after=""):
    """The text that ``ending`` counts the tokens of."""
    model = FakeModel(recurrent=recurrent)
    model.tokenizer = Merging()
    text = render(messages) + after
    tokens = model.tokenizer.encode(text, False, True)
    count = ending(model, messages, text, tokens, render)
    return count and "".join("\n\n" if t == 256 else chr(t) for t in tokens[-count:])


@pytest.mark.parametrize("last", ["b", "-", "+", "-+", "a<user>\na", "<assistant>"])
def test_it_is_the_last_message_of_the_users_and_all_after_it(last):
    talk = said("a sheet, b", "a", "- b", last)
    assert found(talk) == last + "<assistant>"
    assert found(talk, after="It ") == last + "<assistant>It "
    calls = [*talk, {"role": "assistant", "content": "call"}, {"role": "tool", "content": "a"}]
    assert found(calls) == last + "<assistant>\ncall<tool>\na<assistant>"


def test_a_token_across_its_beginning_belongs_to_it():
    assert found(said("a sheet", "\nwell")) == "\n\nwell<assistant>"


def test_it_is_looked_for_where_a_memory_cannot_be_rewound_and_there_is_one():
    def never(messages):
        raise AssertionError("written again for nothing")

    model, talk = FakeModel(recurrent=False), said("a sheet", "b")
    assert ending(model, talk, "ab", [97, 98], never) is None
    model = FakeModel(recurrent=True)
    assert ending(model, said("a sheet"), "a", [97], never) is None
    parts = said("a sheet", [{"type": "text", "text": "b"}])
    assert ending(model, parts, "ab", [97, 98], never) is None


def test_a_template_that_refuses_another_message_leaves_it_unknown():
    def strict(messages):
        if messages[-1]["content"] != "b":
            raise TemplateError("say b")
        return render(messages)

    assert found(said("a sheet", "b"), render=strict) is None
