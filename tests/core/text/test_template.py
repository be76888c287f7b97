"""Chat templates render as the transformers library renders them.

The oracle is Jinja2 itself, set up the way transformers documents: an immutable sandbox with
trim_blocks, lstrip_blocks and loop controls, ``tojson`` as plain ``json.dumps``.
"""

import contextlib
import copy
import json
import threading
from datetime import datetime

import pytest
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from golem_core.text.template import ChatTemplate, TemplateError
from tests import paths

TALK = [
    {"role": "system", "content": " Be <brief> & 'kind'. "},
    {"role": "user", "content": "héllo — 世界 🙂\n\tx"},
    {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {"b": "é"}}]},
    {"role": "tool", "content": "a\nb\r\nc", "name": "f"},
    {"role": "user", "content": [{"type": "text", "text": "part"}, {"type": "image"}]},
]  # fmt: skip
# Pieces of templates, a line of "=====" between them.
SNIPPETS = paths.data("text/snippets.txt").read_bytes().decode().split("\n=====\n")
TOOLS = [{"type": "function", "function": {"name": "z", "parameters": {"b": [1, 2.5, None, True]}}}]


class Generation(Extension):
    """``{% generation %}`` as transformers has it: a call block that returns its body."""

    tags = frozenset({"generation"})

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


@pytest.fixture(scope="module")
def oracle():
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = tojson
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)

    def render(source, **variables):
        return environment.from_string(source).render(
            messages=TALK, tools=TOOLS, bos_token="<s>", eos_token="</s>",
            add_generation_prompt=True, **variables,
        )  # fmt: skip

    return render


@pytest.mark.parametrize("source", SNIPPETS)
def test_renders_as_jinja_set_up_like_transformers(source, oracle):
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    assert template.render(TALK, tools=TOOLS) == oracle(source)


def test_further_arguments_are_variables_of_the_template():
    template = ChatTemplate(
        "{{ enable_thinking }}{{ (documents or [{}])[0].t }}{{ tools is none }}"
    )
    assert template.render(TALK, enable_thinking=False, documents=[{"t": "x"}]) == "FalsexTrue"
    assert template.render(TALK, tools=[]) == "True"


def test_the_source_is_kept():
    assert ChatTemplate(" {{ 1 }} ").source == " {{ 1 }} "


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate: <1>') }}",
        "a{% for m in messages %}{{ raise_exception('roles must alternate: <' ~ 1 ~ '>') }}"
        "{% endfor %}",
        "{% macro m() %}{{ raise_exception('roles must alternate: <1>') }}{% endmacro %}{{ m() }}",
    ],
)
def test_a_refusal_of_the_template_is_the_whole_error(source):
    with pytest.raises(TemplateError) as raised:
        ChatTemplate(source).render(TALK)
    assert str(raised.value) == "roles must alternate: <1>"
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("a\nb\n{% if %}", 3),
        ("{% for a in b %}\n\n{{ x", 3),
        ("\n{{ 'a' | no_such_filter }}", 2),
        ("\n\n\n{% endfor %}", 4),
        ("{% if 1 %}\n{% endfor %}", 2),
    ],
)
def test_an_error_of_syntax_names_its_line(source, line):
    with pytest.raises(TemplateError, match=rf"\bline {line}\b"):
        ChatTemplate(source)


@pytest.mark.parametrize(
    ("source", "line", "what"),
    [
        ("a\n{{ 1 // 0 }}", 2, "zero"),
        ("{% for m in messages %}\n\n{{ m.none_such.x }}{% endfor %}", 3, "none_such"),
        ("\n\n{{ 'a' + 1 }}", 3, "str"),
        ("\n{{ none_such() }}", 2, "none_such"),
        ("{% macro m() %}\n\n{{ 1 // 0 }}{% endmacro %}\n{{ m() }}", 3, "zero"),
        ("\n{{ none_such | tojson }}", 2, "Undefined"),
    ],
)
def test_a_failure_names_its_line_and_what_failed(source, line, what):
    with pytest.raises(TemplateError, match=rf"(?s)\bline {line}\b.*{what}"):
        ChatTemplate(source).render(TALK)


def test_one_mebibyte_is_the_most_counted_in_bytes():
    template = ChatTemplate("{{ 'é' * count }}")
    assert template.render([{"role": "user", "content": ""}], count=1 << 19) == "é" * (1 << 19)
    with pytest.raises(TemplateError, match="longer than 1048576 bytes"):
        template.render([{"role": "user", "content": ""}], count=(1 << 19) + 1)


def test_what_a_conversation_holds_itself_comes_on_top():
    template = ChatTemplate(
        "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}"
    )
    long = "é" * (9 << 20)
    written = template.render([{"role": "user", "content": long}] * 2)
    assert written == f"<user>{long}\n" * 2
    again = ChatTemplate("{% for i in range(99) %}{{ messages[0].content }}{% endfor %}")
    with pytest.raises(TemplateError, match="longer than"):
        again.render([{"role": "user", "content": long}])


def test_lone_surrogates_do_not_break_the_count():
    assert ChatTemplate("{{ messages[0].content }}").render([{"content": "\ud800"}]) == "\ud800"


def test_a_long_conversation_through_a_template_that_looks_back_is_no_offence():
    source = (
        "{% for m in messages %}{% set seen = messages[:loop.index] | selectattr('role', 'eq', "
        "m.role) | list | length %}{{ m.role ~ seen ~ m.content | trim }}{% endfor %}"
    )
    talk = [
        {"role": "user" if i % 2 == 0 else "assistant", "content": "x" * 900} for i in range(400)
    ]
    expected = "".join(f"{m['role']}{i // 2 + 1}{m['content']}" for i, m in enumerate(talk))
    assert ChatTemplate(source).render(talk) == expected


def test_threads_share_a_template_and_nothing_else():
    source = (
        "{% set ns = namespace(n=0) %}{% macro w(x) %}<{{ x }}>{% endmacro %}"
        "{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ w(m.content) ~ ns.n }}{% endfor %}"
        "{{ name }}"
    )
    template = ChatTemplate(source)
    hostile = ChatTemplate("{% for a in range(99999) %}{{ 'x' * 100 }}{% endfor %}")
    wrong, done = [], []

    def work(name):
        talk = [{"role": "user", "content": f"{name}-{i}"} for i in range(50)]
        expected = "".join(f"<{name}-{i}>{i + 1}" for i in range(50)) + str(name)
        for turn in range(30):
            if template.render(talk, name=name) != expected:
                wrong.append(name)
            if turn % 10 == 0:
                try:
                    hostile.render(talk)
                    wrong.append("hostile")
                except TemplateError:
                    pass
        done.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(done) == 8


def test_messages_and_tools_are_as_before():
    talk, tools = copy.deepcopy(TALK), copy.deepcopy(TOOLS)
    source = (
        "{% for m in messages %}{% set m = dict(m, role='x') %}{{ m.role }}{% endfor %}"
        "{% set messages = messages[1:] + [1] %}{{ messages | length }}"
        "{{ tools[0] | dictsort | length }}{{ messages | sort(attribute='role') | length }}"
    )
    with contextlib.suppress(TemplateError):
        ChatTemplate(source).render(talk, tools=tools)
    assert (talk, tools) == (TALK, TOOLS)


@pytest.mark.real
def test_the_template_of_smollm2_writes_chatml():
    from golem_core.formats.gguf import GGUF

    with GGUF.open(paths.smollm2()) as file:
        template = ChatTemplate(str(file.metadata["tokenizer.chat_template"]))
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Bye"},
    ]
    turns = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in talk)
    assert template.render(talk, add_generation_prompt=False) == turns
    assert template.render(talk) == turns + "<|im_start|>assistant\n"
    # Without a system message SmolLM2 introduces itself.
    assert template.render(talk[1:]).startswith(
        "<|im_start|>system\nYou are a helpful AI assistant"
    )
