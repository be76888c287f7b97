"""A Laya checkpoint directory: its configuration, read with types and ranges.

``rl_agent_config.json`` (lengths, temperatures), ``encoder/config.json`` (ModernBERT's numbers),
``model.safetensors`` (all weights), ``tokenizer/`` — as Hugging Face ships them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from golem_core.model import ModelError

CONFIG, WEIGHTS = "rl_agent_config.json", "model.safetensors"
LONGEST_CONFIG = 1 << 20
LONGEST_ROW = 8192
TYPES = ("choice", "score", "noul")  # in the order of their ids
SIZES = ("2", "3-5", "6-10", "11+")


def bucket(kind: str, options: int) -> str:
    """The key of a question's shape in temperature_by_options: "choice:3-5"."""
    size = "2" if options <= 2 else "3-5" if options <= 5 else "6-10" if options <= 10 else "11+"
    return f"{kind}:{size}"


def clamped(value: Any) -> float:
    """A temperature as it is used: 0.5 to 5, and 1 for what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 1.0
    return min(5.0, max(0.5, float(value)))


@dataclass(frozen=True)
class Agent:
    """rl_agent_config.json.

    max_len: tokens of a row at most. head_max_len: of them for question and options. actions:
    outputs of the act head. by_options: temperatures by bucket, over those by type.
    """

    head_layers: int
    max_len: int
    head_max_len: int
    actions: int
    temperature: tuple[float, float, float]
    by_options: Mapping[str, float]

    def temperature_of(self, kind: str, options: int) -> float:
        """What the logits of a question are divided by."""
        return self.by_options.get(bucket(kind, options), self.temperature[TYPES.index(kind)])


@dataclass(frozen=True)
class Encoder:
    """encoder/config.json of a ModernBERT."""

    vocabulary: int
    width: int
    hidden: int
    layers: int
    heads: int
    eps: float
    local: int  # positions a sliding layer sees around each token
    full: tuple[bool, ...]  # whether a layer sees everything
    global_base: float
    local_base: float
    biases: Mapping[str, bool] = field(default_factory=dict)

    @property
    def head_size(self) -> int:
        return self.width // self.heads


class _Object:
    """A JSON object of a file whose members are asked for with type and range."""

    def __init__(self, path: Path):
        self.path = path
        try:
            if path.stat().st_size > LONGEST_CONFIG:
                raise ModelError(f"{path}: is too long for a configuration")
            self.values = json.loads(path.read_bytes())
        except OSError as error:
            raise ModelError(f"{path}: {error.strerror or error}") from None
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{path}: is not JSON: {str(error)[:200]}") from None
        if not isinstance(self.values, dict):
            raise ModelError(f"{path}: an object is expected")

    def fail(self, key: str, expected: str) -> ModelError:
        found = "is missing" if key not in self.values else f"is {str(self.values[key])[:60]!r}"
        return ModelError(f"{self.path}: {key} {found}; {expected} is expected")

    def integer(self, key: str, default: int | None = None, low: int = 1, high: int = 1 << 24):
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.fail(key, f"a whole number from {low} to {high}")
        return value

    def number(self, key: str, default: float, low: float = 0.0) -> float:
        value = self.values.get(key, default)
        wrong = isinstance(value, bool) or not isinstance(value, int | float)
        if wrong or not math.isfinite(value) or value < low:
            raise self.fail(key, f"a number from {low:g}")
        return float(value)


def read_agent(folder: Path) -> Agent:
    """The agent's configuration. Raises ModelError."""
    if not folder.is_dir():
        raise ModelError(f"{folder}: is no directory; -laya takes one that holds {CONFIG}")
    if not (folder / CONFIG).exists():
        raise ModelError(f"{folder}: does not contain {CONFIG!r}; -laya takes one that does")
    if not (folder / WEIGHTS).exists():
        raise ModelError(f"{folder}: {WEIGHTS!r} not found")
    given = _Object(folder / CONFIG)
    for key in ("encoder", "head_layers"):
        if key not in given.values:
            raise given.fail(key, "what a Laya checkpoint has there")
    if given.values.get("option_layout", "sequential") != "sequential":
        raise given.fail("option_layout", '"sequential", the layout of every published checkpoint,')
    temperature = given.values.get("temperature", [1.0, 1.0, 1.0])
    if not isinstance(temperature, list) or len(temperature) != len(TYPES):
        raise given.fail("temperature", "a list of three numbers")
    by_options = given.values.get("temperature_by_options", {})
    costs = given.values.get("act_costs", {})
    for key, value in (("temperature_by_options", by_options), ("act_costs", costs)):
        if not isinstance(value, dict):
            raise given.fail(key, "an object")
    return Agent(
        head_layers=given.integer("head_layers", high=256),
        max_len=given.integer("max_len", 512, high=LONGEST_ROW),
        head_max_len=given.integer("head_max_len", 192, high=LONGEST_ROW),
        actions=len(costs) + 1,
        temperature=tuple(clamped(t) for t in temperature),
        by_options={key: clamped(value) for key, value in by_options.items()},
    )


def read_encoder(folder: Path) -> Encoder:
    """The encoder's configuration. Raises ModelError."""
    given = _Object(folder / "encoder" / "config.json")
    if given.values.get("hidden_activation", "gelu") != "gelu":
        raise given.fail("hidden_activation", '"gelu"')
    width, heads = given.integer("hidden_size"), given.integer("num_attention_heads")
    if width % heads or width // heads % 2:
        raise given.fail("num_attention_heads", f"a divisor of the width {width} to an even size")
    layers = given.integer("num_hidden_layers", high=4096)
    eps = "norm_eps" if "norm_eps" in given.values else "layer_norm_eps"
    names = ("norm_bias", "attention_bias", "mlp_bias")
    bases = {
        "full_attention": given.number("global_rope_theta", 160000.0, 1.0),
        "sliding_attention": given.number("local_rope_theta", 10000.0, 1.0),
    }
    bases |= _rope_parameters(given, bases)
    return Encoder(
        vocabulary=given.integer("vocab_size"),
        width=width,
        hidden=given.integer("intermediate_size"),
        layers=layers,
        heads=heads,
        eps=given.number(eps, 1e-5),
        local=given.integer("local_attention", 128, low=2),
        full=_full_layers(given, layers),
        global_base=bases["full_attention"],
        local_base=bases["sliding_attention"],
        biases={name: bool(given.values.get(name)) for name in names},
    )


def _rope_parameters(given: _Object, bases: Mapping[str, float]) -> dict[str, float]:
    """Bases by layer kind in the newer spelling; a flat one serves both."""
    found = given.values.get("rope_parameters")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise given.fail("rope_parameters", "an object")
    made = {}
    for kind, old in bases.items():
        part = found.get(kind, found)
        base = part.get("rope_theta", old) if isinstance(part, dict) else None
        if isinstance(base, bool) or not isinstance(base, int | float) or not base >= 1:
            raise given.fail("rope_parameters", "a rope_theta of at least 1 for each kind of layer")
        made[kind] = float(base)
    return made


def _full_layers(given: _Object, layers: int) -> tuple[bool, ...]:
    kinds = given.values.get("layer_types")
    if kinds is None:
        every = given.integer("global_attn_every_n_layers", 3)
        return tuple(i % every == 0 for i in range(layers))
    known = ("full_attention", "sliding_attention")
    if not isinstance(kinds, list) or len(kinds) != layers or any(k not in known for k in kinds):
        raise given.fail("layer_types", f"{layers} of {' and '.join(known)}")
    return tuple(kind == "full_attention" for kind in kinds)


def read_special_texts(folder: Path) -> dict[str, str]:
    """The texts of the tokens "cls", "sep" and "mask". Raises ModelError."""
    given = _Object(folder / "tokenizer" / "tokenizer_config.json")

    def text(*names: str) -> str:
        for name in names:
            value = given.values.get(name)
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str) and value:
                return value
        raise given.fail(names[0], "a token's text")

    return {
        "cls": text("cls_token", "bos_token"),
        "sep": text("sep_token", "eos_token"),
        "mask": text("mask_token"),
    }
