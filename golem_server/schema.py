"""What a request may hold: typed fields, limits, and the fields that wait for a later golem.

Sampling settings are not here: ``SamplerParams.resolve`` reads them from the same object. Unknown
fields are ignored, as every server of this API does; a known one that golem does not serve yet is
refused by name, unless its value asks for nothing.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from golem_core.sample.params import shown
from golem_server.body import json_type
from golem_server.errors import Refusal
from golem_server.keep_alive import read_keep_alive

INT_MAX = 2**31 - 1
MOST_STOPS = 256  # every token is compared with each
DEFAULT_TOP = 20  # competitors of a token that a chat answer tells unless it is said how many


class Limits(NamedTuple):
    """Fields of llama-server that bound an answer; -1 and 0 ask for nothing."""

    n_keep: int
    n_discard: int
    n_indent: int
    t_max_predict_ms: int


_LIMITS = {  # default, lowest, highest
    "n_keep": (0, -1, INT_MAX),
    "n_discard": (0, 0, INT_MAX),
    "n_indent": (0, 0, INT_MAX),
    "t_max_predict_ms": (-1, -1, 2**63 - 1),
}
WRONG_LORA = "Field 'lora': Error: 'lora' must be an array of objects with 'id' and 'scale' fields"
NO_LORA = (
    "LoRA adapters are not supported by this server: start it with a model they are merged into"
)


class StreamOptions(msgspec.Struct):
    """``stream_options``."""

    include_usage: bool | None = None


class Drawing(msgspec.Struct, kw_only=True):
    """What every dialect's request says about how the answer is drawn and sent."""

    model: str | None = None  # any name; echoed
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_completion_tokens: int | float | None = None
    max_tokens: int | float | None = None
    n_predict: int | float | None = None
    n_cmpl: int | float | None = None
    n: int | float | None = None
    stop: Any = None
    grammar: str | None = None
    json_schema: Any = None
    cache_prompt: bool | None = None
    id_slot: int | float | None = None
    n_probs: int | float | None = None
    post_sampling_probs: bool | None = None
    n_keep: int | float | None = None
    n_discard: int | float | None = None
    n_indent: int | float | None = None
    t_max_predict_ms: int | float | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None
    backend_sampling: bool | None = None
    sse_ping_interval: int | float | None = None
    lora: Any = None
    keep_alive: Any = None

    @property
    def stays(self) -> float | None:
        """Seconds the model stays in memory after the answer, None = the server's."""
        return read_keep_alive(self.keep_alive)

    @property
    def length(self) -> int | None:
        """Most tokens to draw: None = the server's default, -1 = until the slot is full."""
        for name in ("n_predict", "max_completion_tokens", "max_tokens"):
            value = getattr(self, name)
            if value is not None:
                return whole(name, value, -1, INT_MAX)
        return None

    @property
    def stops(self) -> list[str]:
        """The texts that end an answer; empty ones, which would end each, are left out."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop
        if given is None:
            return []
        if not isinstance(given, list):
            raise Refusal(f"Field 'stop': it must be a text or a list of texts, not {shown(given)}")
        if len(given) > MOST_STOPS:
            raise Refusal(
                f"Field 'stop': {len(given)} texts, and at most {MOST_STOPS} are looked for"
            )
        for text in given:
            if not isinstance(text, str):
                raise Refusal(
                    f"Field 'stop': every element must be a text, and one is {shown(text)}"
                )
        return [text for text in given if text]

    @property
    def answers(self) -> int:
        """How many are drawn to each prompt."""
        for name in ("n_cmpl", "n"):
            value = getattr(self, name)
            if value is not None:
                return whole(name, value, 1, INT_MAX)
        return 1

    @property
    def limits(self) -> Limits:
        """The ends of an answer that llama-server knows besides its length.

        ``n_keep`` and ``n_discard`` say what goes when a full slot makes room; golem's ends the
        answer instead, as llama-server's does unless it is told otherwise.
        """
        if self.lora not in (None, []):
            if not isinstance(self.lora, list):
                raise Refusal(WRONG_LORA)
            raise Refusal(NO_LORA)
        read = {
            name: whole(name, default if value is None else value, low, high)
            for name, (default, low, high) in _LIMITS.items()
            for value in [getattr(self, name)]
        }
        return Limits(**read)

    @property
    def ping(self) -> float | None:
        """Seconds of silence in a stream before a comment is sent; None = as the server has it."""
        if self.sse_ping_interval is None:
            return None
        seconds = whole("sse_ping_interval", self.sse_ping_interval, -1, INT_MAX)
        return math.inf if seconds < 0 else float(seconds)

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class ChatRequest(Drawing):
    """``POST /v1/chat/completions``."""

    messages: Any = None  # checked one by one in messages.py
    tools: Any = None  # checked one by one in tools.py
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_format: str | None = None
    reasoning_effort: str | None = None
    thinking_budget_tokens: int | float | None = None
    reasoning_budget_tokens: int | float | None = None
    response_format: dict[str, Any] | None = None
    verbose: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | float | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    @property
    def thinking_budget(self) -> int:
        """Most tokens of a thought, -1 = any number."""
        for name in ("thinking_budget_tokens", "reasoning_budget_tokens"):
            value = getattr(self, name)
            if value is not None:
                return whole(name, value, -1, INT_MAX)
        return -1

    @property
    def top(self) -> int:
        """Competitors told of each token, 0 = no probabilities at all."""
        if not self.logprobs:
            if self.top_logprobs is not None:
                raise Refusal("top_logprobs requires logprobs to be set to true")
            return 0 if self.n_probs is None else whole("n_probs", self.n_probs, 0, INT_MAX)
        if self.top_logprobs is None:
            return DEFAULT_TOP
        return whole("top_logprobs", self.top_logprobs, 0, INT_MAX)


class CompletionRequest(Drawing):
    """``POST /v1/completions``."""

    prompt: Any = None
    echo: bool | None = None
    logprobs: bool | int | float | None = None

    @property
    def top(self) -> int | None:
        """Competitors told of each token, None = no probabilities at all."""
        if self.logprobs is None or self.logprobs is False:
            return whole("n_probs", self.n_probs, 0, INT_MAX) if self.n_probs else None
        return whole("logprobs", self.logprobs, 0, INT_MAX)


class NativeRequest(Drawing):
    """``POST /completion`` and ``/infill``."""

    prompt: Any = None
    logprobs: int | float | None = None
    return_tokens: bool | None = None
    response_fields: list[str] | None = None
    verbose: bool | None = None  # everything is told anyway
    input_prefix: str | None = None
    input_suffix: str | None = None
    input_extra: Any = None

    @property
    def top(self) -> int:
        """Competitors told of each token, 0 = no probabilities at all."""
        for name in ("n_probs", "logprobs"):
            value = getattr(self, name)
            if value is not None:
                return whole(name, value, 0, INT_MAX)
        return 0


T = TypeVar("T", bound=Drawing)
S = TypeVar("S", bound=msgspec.Struct)

# field: the values that ask for nothing
LATER: Mapping[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("auto", "none"),
    "functions": ([],),
    "function_call": ("auto", "none"),
    "response_format": ({"type": "text"},),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "suffix": ("",),
    "best_of": (1,),
    "n_cache_reuse": (0,),
    "grammar_lazy": (False,),
    "grammar_triggers": ([],),
    "preserved_tokens": ([],),
    "return_tokens": (False,),
    "verbose": (False,),
    "response_fields": ([],),
}


def read_request(kind: type[T], body: Mapping[str, Any]) -> T:
    """The typed request of a decoded body.

    Raises:
        Refusal: for a field of the wrong type, or one that this server does not serve.
    """
    request = typed(kind, body)
    for name, harmless in LATER.items():
        value = body.get(name)
        asks = all(value != one or json_type(value) != json_type(one) for one in harmless)
        if name not in kind.__struct_fields__ and value is not None and asks:
            hint = f" or send {msgspec.json.encode(harmless[0]).decode()}" if harmless else ""
            raise Refusal(f'"{name}" is not served: leave it out{hint}')
    return request


def typed(kind: type[S], body: Mapping[str, Any]) -> S:
    """The fields of a decoded body that a structure names.

    Raises:
        Refusal: for a field of the wrong type.
    """
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise Refusal(_field_message(str(error), body)) from None


def whole(name: str, value: int | float, low: int, high: int) -> int:
    """A number as a whole one inside its limits.

    Raises:
        Refusal: naming field, limits and value.
    """
    if not low <= value <= high:
        raise Refusal(
            f"Field '{name}': Value must be between {low} <= value <= {high}, but got "
            f"{shown(value)}"
        )
    if value != int(value):
        raise Refusal(f"Field '{name}': Value must be a whole number, but got {value}")
    return int(value)


_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]+)`, got `[^`]+` - at `\$\.(?P<path>[^`]+)`")
_TYPES = {
    "str": "string",
    "bool": "boolean",
    "int": "number",
    "float": "number",
    "object": "object",
    "array": "array",
}


def _field_message(text: str, body: Mapping[str, Any]) -> str:
    """msgspec's complaint in the words of the API."""
    match = _EXPECTED.search(text)
    if match is None:
        return f"the request body is not the JSON this endpoint reads: {text}"
    wanted = [_TYPES[t] for t in match["wanted"].split(" | ") if t in _TYPES]
    value: Any = body
    for part in re.findall(r"\w+", match["path"]):
        value = value[int(part)] if isinstance(value, list) else value[part]
    names = " or ".join(dict.fromkeys(wanted))
    return f"Field '{match['path']}': type must be {names}, but is {json_type(value)}"
