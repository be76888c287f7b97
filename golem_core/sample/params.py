"""The settings of a draw: llama-server's names, defaults and limits, checked in one place.

A value past a soft limit is clamped, past a hard one refused, with the texts llama-server's
clients know. Floats are kept as the float32 the arithmetic uses.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

RANDOM_SEED = 0xFFFFFFFF  # "draw a fresh seed"
INT_MAX = 2**31 - 1

# The nine samplers between the biases and the draw, in llama-server's order, and adaptive_p,
# which takes the place of the draw when it is named.
ORDER = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
NAMES = (*ORDER, "adaptive_p")
_SPELLINGS = {name: name for name in NAMES} | {
    "nucleus": "top_p",
    "temp": "temperature",
    "typ": "typ_p",
    "typical": "typ_p",
    "typical_p": "typ_p",
}
_SPELLINGS |= {name.replace("_", "-"): to for name, to in _SPELLINGS.items()}
_SPELLINGS |= {name.replace("_", ""): to for name, to in list(_SPELLINGS.items())}
_LETTERS = dict(zip("edskypmxta", NAMES, strict=True))


class ParamError(ValueError):
    """A field of a request that cannot be used. ``str()`` is the whole message."""

    def __init__(self, field: str, message: str):
        self.field = field
        self.message = message
        super().__init__(message)


# name: (lowest, highest), None = open. Soft ones clamp.
_SOFT: dict[str, tuple[float | None, float | None]] = {
    "top_k": (0, None),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "xtc_probability": (0, 1),
    "xtc_threshold": (0, 1),
    "temperature": (0, None),
    "mirostat": (0, 2),
    "adaptive_target": (None, 1),
}
_HARD: dict[str, tuple[float, float]] = {
    "repeat_last_n": (0, INT_MAX),
    "dry_allowed_length": (0, INT_MAX),
    "dry_penalty_last_n": (0, INT_MAX),
    "adaptive_decay": (0, 0.99),
    "min_keep": (0, INT_MAX),
}
# llama-server finds these out when it makes its samplers, and calls them by other names.
_PENALTIES = {
    "repeat_penalty": "penalty_repeat must be finite and greater than 0",
    "frequency_penalty": "penalty_freq must be finite",
    "presence_penalty": "penalty_present must be finite",
}
_FILE_NAMES = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "penalty_last_n": "repeat_last_n",
    "penalty_repeat": "repeat_penalty",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
    "sequence": "samplers",
}


@dataclass
class SamplerParams:
    """Everything that shapes a draw. Raises ParamError for a value past a hard limit.

    logit_bias: (token, added value) pairs, -inf bans; duplicates add up. samplers: the chain's
    order, names of ``NAMES``. seed: of every generator of the request, taken modulo 2**32;
    ``RANDOM_SEED`` draws a fresh one. grammar: GBNF the answer is held to. json_schema: a schema
    it is held to, unless there is a grammar; None = none. grammar_after: they hold from the end of
    this token, or of this text, on (an answer that thinks first); until then the answer may not
    end.
    """

    seed: int = RANDOM_SEED
    temperature: float = 0.8  # 0 = always the best
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 40  # 0 = all
    top_p: float = 0.95
    min_p: float = 0.05
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    typical_p: float = 1.0
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    min_keep: int = 0
    ignore_eos: bool = False
    logit_bias: tuple[tuple[int, float], ...] = ()
    samplers: tuple[str, ...] = ORDER
    grammar: str = ""
    json_schema: Any = None
    grammar_after: int | bytes | None = None

    def __post_init__(self):
        for f in fields(self):
            value = getattr(self, f.name)
            if f.type == "float":
                setattr(self, f.name, _as_float32(f.name, value))
            elif f.type == "int" and f.name != "seed":
                setattr(self, f.name, max(-INT_MAX, min(INT_MAX, int(value))))
            if f.name in _HARD:
                _check_limits(f.name, value, *_HARD[f.name])
        for name, (low, high) in _SOFT.items():
            value = getattr(self, name)
            value = value if low is None else max(low, value)
            setattr(self, name, value if high is None else min(high, value))
        if self.dry_base < 1.0:
            self.dry_base = 1.75
        if not self.repeat_penalty > 0 or math.isinf(_rounded(1 / self.repeat_penalty)):
            raise _penalty_error("repeat_penalty")
        self.seed = int(self.seed) & 0xFFFFFFFF

    @classmethod
    def resolve(
        cls,
        file_sampling: Mapping[str, Any],
        request: Mapping[str, Any],
        *,
        tokenizer: Any = None,
    ) -> SamplerParams:
        """llama-server's defaults, the file's ``general.sampling.*`` over them, the request over
        both.

        file_sampling: keys with or without that prefix. request: a decoded JSON object; ``null``
        counts as absent, fields that are no sampling settings are left alone. tokenizer: what
        ``logit_bias`` entries given as text are encoded with. Raises ParamError.
        """
        values: dict[str, Any] = {}
        for key, value in file_sampling.items():
            name = _FILE_NAMES.get(key.removeprefix("general.sampling."))
            if name == "samplers":  # of a file that may be newer than golem
                parts = str(value).lower().split(";")
                values[name] = parse_samplers([part for part in parts if part in _SPELLINGS])
            elif name is not None:
                values[name] = value
        for f in fields(cls):
            value = request.get(f.name)
            if value is None:
                continue
            if f.type == "float":
                values[f.name] = _rounded(_number(f.name, value))
            elif f.type == "int":
                values[f.name] = _whole(f.name, value)
            elif f.type == "bool":
                if not isinstance(value, bool):
                    raise _wrong_type(f.name, "boolean", value)
                values[f.name] = value
        if (sent := request.get("dry_sequence_breakers")) is not None:
            values["dry_sequence_breakers"] = _breakers(sent)
        if (sent := request.get("samplers")) is not None:
            values["samplers"] = parse_samplers(sent)
        if (sent := request.get("logit_bias")) is not None:
            values["logit_bias"] = parse_logit_bias(sent, tokenizer)
        if (sent := request.get("grammar")) is not None:
            if not isinstance(sent, str):
                raise _wrong_type("grammar", "string", sent)
            values["grammar"] = sent
        values["json_schema"] = request.get("json_schema")
        if (sent := request.get("grammar_after")) is not None:
            if isinstance(sent, bool) or not isinstance(sent, int | str | bytes) or sent == "":
                raise _wrong_type("grammar_after", "string or number", sent)
            values["grammar_after"] = sent.encode() if isinstance(sent, str) else sent
        return cls(**values)

    @property
    def penalises(self) -> bool:
        """Whether repeat, frequency or presence penalties do anything."""
        unused = (self.repeat_penalty, self.frequency_penalty, self.presence_penalty) == (1, 0, 0)
        return self.repeat_last_n > 0 and not unused

    @property
    def constrained(self) -> bool:
        """Whether a grammar or a schema is asked for."""
        return bool(self.grammar) or self.json_schema is not None

    @property
    def dries(self) -> bool:
        """Whether the DRY sampler does anything."""
        return self.dry_multiplier != 0 and self.dry_base >= 1 and self.dry_penalty_last_n > 0


def parse_samplers(sent: Any) -> tuple[str, ...]:
    """A chain from a list of names or a string of letters. Raises ParamError for one that is
    neither, or nobody's."""
    if isinstance(sent, str):
        known: Mapping[str, str] = _LETTERS
        possible = f"the letters are {' '.join(_LETTERS)}, or send a list of names"
    elif isinstance(sent, Sequence) and not isinstance(sent, bytes):
        known = _SPELLINGS
        possible = f"the samplers are {', '.join(NAMES)}"
    else:
        raise _wrong_type("samplers", "array", sent)
    names = []
    for one in sent:
        if (
            not isinstance(one, str)
            or (name := known.get(one if known is _LETTERS else one.lower())) is None
        ):
            raise ParamError("samplers", f"Field 'samplers': {shown(one)} is none; {possible}")
        names.append(name)
    return tuple(names)


_BIASES = "send {id or text: bias} or [[id or text, bias], …], where false bans"


def parse_logit_bias(sent: Any, tokenizer: Any = None) -> tuple[tuple[int, float], ...]:
    """(token, bias) pairs from ``[[id or text, bias], …]`` or ``{id or text: bias}``.

    A bias of false bans; a text's tokens are biased one by one. Raises ParamError for anything
    else, for an id outside the vocabulary, and for a text when there is no tokenizer.
    """
    if isinstance(sent, Mapping):
        entries = [(_id_or_text(key), bias) for key, bias in sent.items()]
    elif isinstance(sent, Sequence) and not isinstance(sent, str | bytes):
        entries = [_pair(entry) for entry in sent]
    else:
        raise ParamError("logit_bias", f"Field 'logit_bias': it is {shown(sent)}; {_BIASES}")
    biases: list[tuple[int, float]] = []
    for what, bias in entries:
        value = -math.inf if bias is False else bias
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise _bias_error(what, f"the bias {shown(bias)} is no number; {_BIASES}")
        if isinstance(value, int) or math.isfinite(value):
            value = _rounded(value)
            if not math.isfinite(value):
                raise _bias_error(what, f"the bias {shown(bias)} is out of range")
        elif bias is not False:
            raise _bias_error(what, "an infinite bias; send false to ban it")
        biases += [(token, value) for token in _biased(what, tokenizer)]
    return tuple(biases)


def _pair(entry: Any) -> tuple[Any, Any]:
    if isinstance(entry, Sequence) and not isinstance(entry, str | bytes) and len(entry) == 2:
        return entry[0], entry[1]
    raise ParamError("logit_bias", f"Field 'logit_bias': {shown(entry)} is no pair; {_BIASES}")


def _id_or_text(key: Any) -> Any:
    if not isinstance(key, str):  # from Python; JSON's keys are texts
        return key
    digits = key.strip()
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else key


def _biased(what: Any, tokenizer: Any) -> Sequence[int]:
    """The tokens that an entry is about."""
    if isinstance(what, str):
        if tokenizer is None:
            raise _bias_error(what, "a text, and there is no tokenizer to read it: send ids")
        return tokenizer.encode(what, add_special=False, parse_special=True)
    if isinstance(what, bool) or not isinstance(what, int):
        raise _bias_error(what, f"it is neither an id nor a text; {_BIASES}")
    most = getattr(tokenizer, "n_vocab", 1 << 31)
    if not 0 <= what < most:
        raise _bias_error(what, f"ids are 0 to {most - 1}")
    return [what]


def _bias_error(what: Any, why: str) -> ParamError:
    return ParamError("logit_bias", f"Field 'logit_bias': {shown(what)}: {why}")


def shown(value: Any) -> str:
    """A value of the client's in a message: as JSON, not longer than fits a line."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 60 else text[:60] + "…"


MOST_BREAKERS = 32  # each costs a look at every token of the vocabulary


def _breakers(sent: Any) -> tuple[str, ...]:
    if not isinstance(sent, list) or not sent or not all(isinstance(s, str) for s in sent):
        raise ParamError(
            "dry_sequence_breakers",
            "Field 'dry_sequence_breakers': Error: dry_sequence_breakers must be a non-empty "
            "array of strings",
        )
    if len(sent) > MOST_BREAKERS:
        raise ParamError(
            "dry_sequence_breakers",
            f"Field 'dry_sequence_breakers': {len(sent)} breakers, at most {MOST_BREAKERS} "
            "are read",
        )
    return tuple(sent)


_JSON_TYPES = {str: "string", bool: "boolean", list: "array", dict: "object", type(None): "null"}


def _wrong_type(name: str, wanted: str, value: Any) -> ParamError:
    seen = _JSON_TYPES.get(type(value), "number")
    return ParamError(name, f"Field '{name}': type must be {wanted}, but is {seen}")


def _number(name: str, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_type(name, "number", value)
    return value


def _whole(name: str, value: Any) -> int:
    value = _number(name, value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ParamError(name, f"Field '{name}': Value must be finite, but got {value}")
    if value != int(value):
        raise ParamError(name, f"Field '{name}': Value must be a whole number, but got {value}")
    return int(value)


def _check_limits(name: str, value: float, low: float, high: float) -> None:
    if low <= value <= high:
        return
    write = "{:f}".format if isinstance(high, float) else shown
    raise ParamError(
        name,
        f"Field '{name}': Value must be between {write(low)} <= value <= {write(high)}, but got "
        f"{write(value)}",
    )


def _penalty_error(name: str) -> ParamError:
    return ParamError(name, f"Failed to initialize samplers: {_PENALTIES[name]}")


def _as_float32(name: str, value: float) -> float:
    """The float32 nearest to a number, as a Python float."""
    value = _rounded(value)
    if not math.isfinite(value) and name in _PENALTIES:
        raise _penalty_error(name)
    if not math.isfinite(value):
        raise ParamError(name, f"Field '{name}': Value must be finite, but got {value}")
    return value


def _rounded(value: float) -> float:
    """The float32 nearest to a number, infinite where there is none."""
    try:
        return struct.unpack("f", struct.pack("f", float(value)))[0]
    except OverflowError:
        return -math.inf if value < 0 else math.inf
