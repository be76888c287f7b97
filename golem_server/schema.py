"""What a request may hold: typed fields, limits, and the fields that wait for a later golem.

Sampling settings are not here: ``SamplerParams.resolve`` reads them from the same object. Unknown
fields are ignored, as every server of this API does; a known one that golem does not serve yet is
refused by name, unless its value asks for nothing.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from golem_server.body import json_type
from golem_server.errors import Refusal
from golem_server.keep_alive import read_keep_alive

INT_MAX = 2**31 - 1
DEFAULT_TOP = 20  # competitors of a token that a chat answer tells unless it is said how many


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
    n: int | float | None = None
    stop: Any = None
    grammar: str | None = None
    json_schema: Any = None
    cache_prompt: bool | None = None
    id_slot: int | float | None = None
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
        """The texts that end an answer; what is no text, or empty, is left out."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop
        return [t for t in given if isinstance(t, str) and t] if isinstance(given, list) else []

    @property
    def answers(self) -> int:
        """How many are drawn to each prompt."""
        return 1 if self.n is None else whole("n", self.n, 1, INT_MAX)

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
            return 0
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
            return None
        return whole("logprobs", self.logprobs, 0, INT_MAX)


T = TypeVar("T", bound=Drawing)
S = TypeVar("S", bound=msgspec.Struct)

# field: the values that ask for nothing
LATER: Mapping[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("auto", "none"),
    "functions": ([],),
    "function_call": ("auto", "none"),
    "response_format": ({"type": "text"},),
    "n_probs": (0,),
    "post_sampling_probs": (False,),
    "lora": ([],),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "suffix": ("",),
    "best_of": (1,),
    "n_cmpl": (1,),
    "n_keep": (0,),
    "n_discard": (0,),
    "n_indent": (0,),
    "n_cache_reuse": (0,),
    "t_max_predict_ms": (-1,),
    "return_tokens": (False,),
    "return_progress": (False,),
    "timings_per_token": (False,),
    "verbose": (False,),
    "response_fields": ([],),
}


def read_request(kind: type[T], body: Mapping[str, Any]) -> T:
    """The typed request of a decoded body.

    Raises:
        Refusal: for a field of the wrong type, or one that this server does not serve yet.
    """
    request = typed(kind, body)
    for name, harmless in LATER.items():
        value = body.get(name)
        if name not in kind.__struct_fields__ and value is not None and value not in harmless:
            hint = f" or send {msgspec.json.encode(harmless[0]).decode()}" if harmless else ""
            raise Refusal(f'"{name}" is not implemented by this server yet: leave it out{hint}')
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
    number = int(value) if abs(value) < 2**63 else value
    if not low <= number <= high:
        raise Refusal(
            f"Field '{name}': Value must be between {low} <= value <= {high}, but got {number}"
        )
    return number


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
