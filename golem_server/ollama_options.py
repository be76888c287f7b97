"""Ollama's ``options``: their names, their types, and what each is called here."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from golem_core.sample import SamplerParams
from golem_server.errors import Refusal

# Of the machine or of how weights are loaded: golem decides these when it starts.
_RESOURCES = frozenset(
    (
        "numa",
        "num_batch",
        "num_gpu",
        "main_gpu",
        "low_vram",
        "f16_kv",
        "logits_all",
        "vocab_only",
        "use_mmap",
        "use_mlock",
        "embedding_only",
        "num_thread",
        "num_gqa",
        "rope_frequency_base",
        "rope_frequency_scale",
        # What goes when a full context makes room, which golem's does not.
        "num_keep",
        # Part of no sampler any more, at Ollama either.
        "penalize_newline",
    )
)
_OWN = {"num_ctx": "int", "num_predict": "int", "tfs_z": "float", "stop": "array"}
_SAMPLING = {
    f.name: f.type if f.type in ("int", "float", "bool") else "any"
    for f in fields(SamplerParams)
    if f.name not in ("grammar", "json_schema", "grammar_after")
}
_TYPES = {"int": "integer", "float": "float32", "bool": "boolean", "array": "array"}

LEAST_CONTEXT = 4


class Options(NamedTuple):
    """``options`` as they are used.

    sampling: fields of SamplerParams. length: most tokens, None = the server's default, -1 = until
    the context is full. context: tokens that prompt and answer may take, None = the slot's.
    """

    sampling: dict[str, Any]
    stop: list[str]
    length: int | None
    context: int | None


def read_options(given: Mapping[str, Any] | None, slot: int) -> Options:
    """The options of a request, or of a model that was made with some.

    Args:
        slot: positions of a slot.

    Raises:
        Refusal: for a name that does nothing here, a wrong type, or a context that no slot has.
    """
    options = {name: value for name, value in (given or {}).items() if value is not None}
    for name, value in options.items():
        _check(name, value)
    sampling = {name: options[name] for name in options if name in _SAMPLING}
    if sampling.get("repeat_last_n") == -1:
        sampling["repeat_last_n"] = slot
    if options.get("tfs_z", 1) != 1:
        raise Refusal('option "tfs_z" is not implemented: leave it out or send 1')
    length = options.get("num_predict")
    if length is not None and (length := int(length)) < 0:
        if length < -2:
            raise Refusal(f'option "num_predict" is {length}: it is -1, -2 or a number of tokens')
        length = -1
    context = options.get("num_ctx")
    if context:
        context = max(LEAST_CONTEXT, int(context))
        if context > slot:
            raise Refusal(
                f'option "num_ctx" is {context}, and a conversation has {slot} positions here: ask '
                "for fewer, or start the server with a larger -context or a smaller -parallel"
            )
    stops = [text for text in options.get("stop", []) if isinstance(text, str) and text]
    return Options(sampling, stops, length, context or None)


def _check(name: str, value: Any) -> None:
    kind = _OWN.get(name) or _SAMPLING.get(name)
    if name in _RESOURCES or kind == "any":
        return
    if kind is None:
        raise Refusal(
            f'option "{name[:50]}" is none that this server knows; there are '
            f"{', '.join(sorted([*_OWN, *_SAMPLING]))}"
        )
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        "int": number and abs(value) < 2**63,
        "float": number,
        "bool": isinstance(value, bool),
        "array": isinstance(value, list) and all(isinstance(item, str) for item in value),
    }
    if not fits[kind]:
        raise Refusal(f'option "{name}" must be of type {_TYPES[kind]}')
