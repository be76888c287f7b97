"""Wrong arguments of the Python API: refused by the call that got them, by name."""

import numpy as np
import pytest

import golem_core
from golem_core.api import Session
from golem_core.schedule import EngineClosed
from tests.core.schedule.fakes import FakeModel

TALK = [{"role": "user", "content": "a"}]


@pytest.fixture(scope="module")
def session():
    model = FakeModel()
    model.executor.script = lambda history: ord("z")
    with Session(model) as opened:
        yield opened


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"max_tokens": "3"}, TypeError, "max_tokens='3': it must be a whole number"),
        ({"max_tokens": 2.5}, TypeError, "max_tokens=2.5: it must be a whole number"),
        ({"max_tokens": True}, TypeError, "max_tokens=True: it must be a whole number"),
        ({"max_tokens": -2}, ValueError, "max_tokens=-2: it must be -1 or more (-1 fills the"),
        ({"logprobs": -1}, ValueError, "logprobs=-1: it must be 0 to 257"),
        ({"logprobs": 10**9}, ValueError, "logprobs=1000000000: it must be 0 to 257"),
        ({"logprobs": True}, TypeError, "logprobs=True: it must be a whole number"),
        ({"stop": 7}, TypeError, "stop=7: it must be a text or a list of texts"),
        ({"stop": ["a", None]}, TypeError, "stop=['a', None]: it must be a text or a list"),
        ({"stop": b"a"}, TypeError, "stop=b'a': it must be a text or a list of texts"),
        ({"seed": "1"}, TypeError, "seed='1': it must be a whole number"),
        ({"seed": 1.5}, TypeError, "seed=1.5: it must be a whole number"),
        ({"temperature": "hot"}, TypeError, "temperature='hot': it must be a number"),
        ({"temperature": False}, TypeError, "temperature=False: it must be a number"),
        ({"temperature": float("nan")}, ValueError, "temperature"),
        ({"seed": float("inf")}, ValueError, "seed"),
        ({"ignore_eos": 1}, TypeError, "ignore_eos=1: it must be True or False"),
        ({"cache_prompt": None}, TypeError, "cache_prompt=None: it must be True or False"),
        ({"maxtokens": 3}, TypeError, "there is no setting 'maxtokens'; did you mean 'max_tokens'"),
    ],
)
def test_how_to_draw(session, given, kind, text):
    with pytest.raises(kind) as refused:
        session.generate("a", **given)
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("prompt", "kind", "text"),
    [
        ("", ValueError, "prompt='': there is nothing to continue"),
        ([], ValueError, "prompt=[]: there is nothing to continue"),
        (None, TypeError, "prompt=None: it must be a text or a list of token ids"),
        (b"a", TypeError, "prompt=b'a': it must be a text"),
        ([1, "2"], TypeError, "prompt=[1, '2']: it must be a text or a list of token ids"),
        ([{"role": "user"}], TypeError, "chat() takes a conversation"),
        ([1, 300], ValueError, "prompt[1]=300: ids are 0 to 256"),
        ([-1], ValueError, "prompt[0]=-1: ids are 0 to 256"),
    ],
)
def test_prompts(session, prompt, kind, text):
    with pytest.raises(kind) as refused:
        session.generate(prompt)
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda s: s.tokenize(None), TypeError, "text=None: it must be a text"),
        (lambda s: s.tokenize("a", add_special=1), TypeError, "add_special=1: it must be True or"),
        (lambda s: s.detokenize("x"), TypeError, "tokens='x': it must be a list of token ids"),
        (lambda s: s.detokenize([1, 999]), ValueError, "tokens[1]=999: ids are 0 to 256"),
        (lambda s: s.detokenize([1.5]), TypeError, "tokens=[1.5]: it must be a list of token ids"),
        (lambda s: s.slot("a"), TypeError, "index='a': it must be a whole number"),
        (lambda s: s.slot(True), TypeError, "index=True: it must be a whole number"),
        (lambda s: s.slot(-1), IndexError, "there is no slot -1; there are 1"),
        (lambda s: s.slot(0).save(5), TypeError, "path=5: it must be a path"),
        (lambda s: s.chat(TALK, tools="x"), TypeError, "tools='x': it must be a list of dicts"),
        (lambda s: s.chat(TALK, tools=[5]), TypeError, "tools=[5]: it must be a list of dicts"),
        (
            lambda s: s.chat(TALK, template_arguments=[1]),
            TypeError,
            "template_arguments=[1]: it must be a dict from names to values",
        ),
        (
            lambda s: s.chat(TALK, template_arguments={"messages": []}),
            ValueError,
            "template_arguments cannot hold 'messages': chat() gives that to the template itself",
        ),
        (lambda s: golem_core.open(5), TypeError, "path=5: it must be a path"),
        (lambda s: s.slot(1), IndexError, "there is no slot 1; there are 1"),
    ],
)
def test_what_else_a_session_is_asked(session, call, kind, text):
    with pytest.raises(kind) as refused:
        call(session)
    assert text in str(refused.value)


def test_a_closed_session_says_so_whatever_it_is_asked(tmp_path):
    with Session(FakeModel()) as closed:
        slot = closed.slot(0)
    for call in (
        lambda: closed.tokenize("a"),
        lambda: closed.detokenize([1]),
        lambda: closed.generate("a"),
        lambda: closed.chat([{"role": "user", "content": "a"}]),
        lambda: closed.embed("a"),
        lambda: closed.slot(0),
        lambda: slot.state,
        slot.erase,
        slot.reset,
        lambda: slot.save(tmp_path / "slot"),
        lambda: slot.restore(tmp_path / "slot"),
    ):
        with pytest.raises(EngineClosed, match="this model is closed: open it again"):
            call()


def test_roles_are_what_the_server_takes():
    model = FakeModel()
    model.answers({"^[system:be kind][user:hi][assistant:yes][user:ok][": "Fine."})
    with Session(model) as opened:
        roles = ("developer", "be kind"), ("user", "hi"), ("model", "yes"), ("user", "ok")
        talk = [{"role": role, "content": text} for role, text in roles]
        assert opened.chat(talk, temperature=0).text == "Fine."


def test_arrays_and_iterables_are_as_good_as_lists(session):
    for prompt in (np.array([97, 98]), (97, 98), iter([97, 98])):
        assert session.generate(prompt, max_tokens=np.int64(2)).text == "zz"
    assert session.generate("a", stop=("q", "zz"), max_tokens=5).text == ""


@pytest.mark.parametrize(
    ("messages", "kind", "text"),
    [
        ([], ValueError, "messages=[]: a conversation has at least one message"),
        ("hello", TypeError, "messages='hello': it must be a list such as"),
        ({"role": "user", "content": "a"}, TypeError, "it must be a list such as"),
        (["hello"], TypeError, "messages[0]='hello': it must be a dict"),
        ([{"content": "a"}], ValueError, "messages[0] has the role None; the roles are system,"),
        ([{"role": "usr", "content": "a"}], ValueError, "role 'usr'; did you mean 'user'?"),
        ([{"role": "user"}], TypeError, "messages[0] has the content None: it must be a text"),
        ([{"role": "user", "content": 3}], TypeError, "messages[0] has the content 3"),
        ([{"role": "assistant", "content": None}], TypeError, "messages[0] has the content None"),
    ],
)
def test_conversations(session, messages, kind, text):
    with pytest.raises(kind) as refused:
        session.chat(messages)
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"threads": 5000}, ValueError, "threads=5000: it must be 1 to 1024"),
        ({"threads": 0}, ValueError, "threads=0: it must be 1 to 1024"),
        ({"threads": "2"}, TypeError, "threads='2': it must be a whole number"),
        ({"parallel": 0}, ValueError, "parallel=0: it must be 1 to 256"),
        ({"context": -1}, ValueError, "context=-1: it must be 0 or more (0 = as trained)"),
        ({"context": 1.5}, TypeError, "context=1.5: it must be a whole number"),
        ({"queue": -1}, ValueError, "queue=-1: it must be 0 or more"),
        ({"cache_ttl": "1h"}, TypeError, "cache_ttl='1h': it must be a number of seconds"),
        ({"request_timeout": -1}, ValueError, "request_timeout=-1: it must be 0 or more seconds"),
        ({"default_length": None}, TypeError, "default_length=None: it must be a whole number"),
        ({"contxt": 5}, TypeError, "there is no argument 'contxt'; did you mean 'context'?"),
        ({"passwidth": 5}, TypeError, "did you mean 'pass_width'?"),
    ],
)
def test_how_to_open(given, kind, text):
    with pytest.raises(kind) as refused:
        golem_core.open("there-is-no-such.gguf", **given)
    assert text in str(refused.value)
