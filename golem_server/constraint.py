"""What an answer is held to: a grammar, a JSON schema, a call that must be made.

All of them become one grammar of the whole answer, thought included, so that the sampler needs
to know nothing of thoughts and calls. The latest grammars are kept.
"""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from golem_core.sample.grammar import Expression, Grammar, GrammarError, Token
from golem_core.sample.grammar.collecting import paused
from golem_core.sample.grammar.expressions import Rule, alt, maybe, repeat, seq, text, until
from golem_core.sample.grammar.gbnf import parse
from golem_core.sample.grammar.notation import JSON, Notation
from golem_core.sample.grammar.schema import JSON_OBJECT, expression_of, grammar_of
from golem_core.text.sorter import CallFormat
from golem_server.body import json_type
from golem_server.errors import Refusal
from golem_server.schema import ChatRequest
from golem_server.tools import Offer

_KEPT = 32  # grammars


class _Mark(NamedTuple):
    """A text that the sorter looks for, as it is drawn: ``(id, its bytes)``, the bytes None for a
    control token, which has no text."""

    text: str
    tokens: tuple[tuple[int, bytes | None], ...]

    @property
    def expression(self) -> Expression:
        """The mark itself."""
        if all(piece is not None for _, piece in self.tokens):
            return text(self.text)
        return seq(*(Token(i) if piece is None else text(piece) for i, piece in self.tokens))

    @property
    def awaited(self) -> Expression:
        """Whatever comes, up to the mark and with it."""
        token, piece = self.tokens[0]
        if len(self.tokens) == 1 and piece is None:
            return seq(repeat(Token(token, other=True)), Token(token))
        return until(self.text.encode())


def constraint(
    request: ChatRequest, offer: Offer, model: Any, *, beginning: str, inside: bool, thinks: bool
) -> Grammar | None:
    """The grammar of the whole answer; None when it is free.

    Args:
        beginning: what the client wrote of the answer.
        inside: the prompt ends in an open thought.
        thinks: the answer may begin with one.

    Raises:
        Refusal: for what cannot be kept, and for two requests at once.
    """
    schema, written = _schema(request), request.grammar or None
    _refuse_several(request, schema, written, bool(offer))
    if not offer.forced and schema is None and written is None:
        return None
    if beginning:
        raise Refusal(
            "an answer that is held to a grammar, a schema or a call cannot go on from a message "
            "of the assistant: end the messages with another role, or leave the other out"
        )
    called = offer.forced or tuple(offer.parameters)
    wanted = {
        "schema": None if offer.forced else schema,
        "written": written,
        "tools": {name: offer.parameters[name] for name in called},
        "single": offer.single,
    }
    try:
        asked = json.dumps(wanted)
    except RecursionError:
        raise Refusal("a schema of this request is nested too deeply") from None
    thought = model.reasoning if inside or thinks else None
    return _built(
        asked,
        model.call,
        tuple(_mark(model.tokenizer, mark) for mark in thought or ()),
        inside,
        (_mark(model.tokenizer, model.call.open), _mark(model.tokenizer, model.call.close))
        if called
        else (),
    )


def _mark(tokenizer: Any, mark: str) -> _Mark:
    ids = tokenizer.encode(mark, parse_special=True)
    hidden = tokenizer.is_control
    return _Mark(mark, tuple((i, None if hidden(i) else tokenizer.piece(i)) for i in ids))


@lru_cache(_KEPT)
@paused()
def _built(
    asked: str,
    notation: CallFormat | None,
    thought: tuple[_Mark, ...],
    inside: bool,
    around: tuple[_Mark, ...],
) -> Grammar:
    """The grammar of what is asked. thought: its marks; around: those of a call."""
    wanted = json.loads(asked)
    answers: list[Expression] = []
    others: Iterable[Rule] = ()
    if wanted["written"] is not None:
        rules = _rules(wanted["written"])
        answers, others = [rules["root"]], rules.values()
    if wanted["schema"] is not None:
        answers.append(_values(wanted["schema"]))
    if wanted["tools"]:
        answers.append(_calls(wanted["tools"], notation, around, wanted["single"]))
    answer = alt(*answers)
    if thought:
        opens, closes = thought
        answer_after = seq(closes.awaited, maybe(text("\n")), maybe(text("\n")), answer)
        answer = answer_after if inside else alt(answer, seq(opens.expression, answer_after))
    try:
        grammar = Grammar(answer, others=others, prune=wanted["written"] is None)
    except GrammarError as error:
        if wanted["written"] is None:
            _refuse_schemas(wanted, notation, f"the schemas of this request are too large: {error}")
        raise _not_a_grammar(error) from None
    if grammar.never:
        _refuse_schemas(wanted, notation, "no value satisfies the schema of this answer")
    return grammar


def _refuse_schemas(wanted: Mapping[str, Any], notation: CallFormat | None, reason: str) -> None:
    """Refuses what became no grammar: by the schema, the keyword and the path that are to blame,
    where it is one of the schemas, else for the reason given."""
    asked = [] if wanted["schema"] is None else [("", wanted["schema"], JSON)]
    for name, schema in wanted["tools"].items():
        asked.append((f'tool "{name}": ', _arguments(name, schema), notation.notation))
    for whose, schema, spelling in asked:
        try:
            grammar_of(schema, notation=spelling or JSON)
        except GrammarError as error:
            raise Refusal(f"{whose}{error}") from None
    raise Refusal(reason)


# ---- what is asked ----


def _schema(request: ChatRequest) -> Any:
    """The schema that the content is held to, None when there is none."""
    given = request.response_format or {}
    kind = given.get("type") if given else "text"
    if kind not in ("text", "json_object", "json_schema"):
        shown = kind if isinstance(kind, str) else json_type(kind)
        raise Refusal(
            f'response_format type must be one of "text" or "json_object", but got: {shown}'
        )
    if kind == "text":
        return JSON_OBJECT if request.json_schema == {} else request.json_schema
    if request.json_schema is not None:
        raise Refusal("a request carries either a json_schema or a response_format, not both")
    if kind == "json_object":
        return _object("schema", given.get("schema")) or JSON_OBJECT
    named = _object("json_schema", given.get("json_schema")) or {}
    schema = _object("json_schema.schema", named.get("schema"))
    if schema is None:
        raise Refusal(
            "response_format is json_schema and names no schema: send "
            '{"type": "json_schema", "json_schema": {"name": "answer", "schema": {…}}}'
        )
    return schema or JSON_OBJECT


def _object(name: str, value: Any) -> Mapping[str, Any] | None:
    """A member of response_format that is an object where it is sent."""
    if value is not None and not isinstance(value, Mapping):
        raise Refusal(
            f"Field 'response_format.{name}': type must be object, but is {json_type(value)}"
        )
    return value


def _refuse_several(request: ChatRequest, schema: Any, written: str | None, tools: bool) -> None:
    if written is None:
        return
    if request.json_schema is not None:
        raise Refusal("Cannot use both json_schema and grammar")
    if schema is not None:
        raise Refusal("a request carries either a grammar or a response_format, not both")
    if tools:
        raise Refusal("Cannot use custom grammar constraints with tools.")


def _rules(written: str) -> dict[str, Rule]:
    """The rules of a GBNF text."""
    try:
        return parse(written)
    except GrammarError as error:
        raise _not_a_grammar(error) from None


def _not_a_grammar(error: GrammarError) -> Refusal:
    return Refusal(f"Failed to initialize samplers: failed to parse grammar: {error}")


def _values(schema: Any, whose: str = "", notation: Notation | None = None) -> Expression:
    """The texts of a schema's values, in JSON or another notation."""
    try:
        return expression_of(schema, notation or JSON)
    except GrammarError as error:
        raise Refusal(f"{whose}{error}") from None


def _calls(
    tools: Mapping[str, Any], notation: CallFormat, around: tuple[_Mark, ...], single: bool
) -> Expression:
    """One call or several, each of a tool that may be called, with the arguments it takes."""
    bodies = []
    for name, schema in tools.items():
        whose = f'tool "{name}": '
        arguments = _values(_arguments(name, schema), whose, notation.notation)
        try:
            bodies.append(notation.body(name, arguments))
        except GrammarError as error:
            raise Refusal(f"{whose}{error}") from None
    opens, closes = around
    call = seq(opens.expression, alt(*bodies), closes.expression)
    return call if single else seq(call, repeat(seq(notation.between, call)))


def _arguments(name: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool's schema without what is no object: a call has named arguments or none."""
    kind = schema.get("type", "object")
    if (isinstance(kind, list) and "object" in kind) or kind == "object":
        return schema | JSON_OBJECT
    _values(schema, f'tool "{name}": ')  # a type that is none is refused first
    raise Refusal(
        f'tool "{name}": its parameters are of the type {json.dumps(kind)}, and the arguments of a '
        'call are an object: {"type": "object", "properties": {…}}'
    )
