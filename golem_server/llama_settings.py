"""The settings of an answer as llama-server tells them: ``generation_settings`` and the rest.

Numbers are those in use, the file's and golem's defaults included; floats are float32, shown whole.
"""

import math
from typing import Any, NamedTuple

from golem_core.schedule import Request
from golem_server.schema import Drawing, Limits, NativeRequest

PLAIN = "Content-only"
CHAT = "peg-native"  # what llama-server calls an answer that is sorted into thought, text and calls

# Left out where settings are told of a slot or of the server.
_LONG = (
    "dry_sequence_breakers",
    "stop",
    "logit_bias",
    "grammar",
    "grammar_lazy",
    "grammar_triggers",
    "preserved_tokens",
)


class Asked(NamedTuple):
    """What a request said that the engine does not need to know."""

    stream: bool = False
    limits: Limits = Limits(0, 0, 0, -1)
    chat_format: str = PLAIN
    reasoning_format: str = "deepseek"
    timings_per_token: bool = False
    backend_sampling: bool = False
    return_tokens: bool = False


def asked_of(request: Drawing, limits: Limits, chat_format: str) -> Asked:
    """What is kept of a request for as long as its slot remembers it: none of its texts."""
    return Asked(
        bool(request.stream),
        limits,
        chat_format,
        getattr(request, "reasoning_format", None) or "deepseek",
        bool(request.timings_per_token),
        bool(request.backend_sampling),
        isinstance(request, NativeRequest) and bool(request.return_tokens),
    )


def settings(request: Request, default_length: int, *, short: bool = False) -> dict[str, Any]:
    """The settings of a request that the engine was given.

    default_length: of answers whose request names none. short: without texts and lists.
    """
    params = request.params
    asked = request.note if isinstance(request.note, Asked) else Asked()
    length = default_length if request.max_tokens is None else request.max_tokens
    told = {
        "seed": params.seed,
        "temperature": float(params.temperature),
        "dynatemp_range": float(params.dynatemp_range),
        "dynatemp_exponent": float(params.dynatemp_exponent),
        "top_k": params.top_k,
        "top_p": float(params.top_p),
        "min_p": float(params.min_p),
        "top_n_sigma": float(params.top_n_sigma),
        "xtc_probability": float(params.xtc_probability),
        "xtc_threshold": float(params.xtc_threshold),
        "typical_p": float(params.typical_p),
        "repeat_last_n": params.repeat_last_n,
        "repeat_penalty": float(params.repeat_penalty),
        "presence_penalty": float(params.presence_penalty),
        "frequency_penalty": float(params.frequency_penalty),
        "dry_multiplier": float(params.dry_multiplier),
        "dry_base": float(params.dry_base),
        "dry_allowed_length": params.dry_allowed_length,
        "dry_penalty_last_n": params.dry_penalty_last_n,
        "dry_sequence_breakers": params.dry_sequence_breakers,
        "mirostat": params.mirostat,
        "mirostat_tau": float(params.mirostat_tau),
        "mirostat_eta": float(params.mirostat_eta),
        "adaptive_target": float(params.adaptive_target),
        "adaptive_decay": float(params.adaptive_decay),
        "stop": request.stop,
        "max_tokens": length,
        "n_predict": length,
        "n_keep": asked.limits.n_keep,
        "n_discard": asked.limits.n_discard,
        "ignore_eos": params.ignore_eos,
        "stream": asked.stream,
        "logit_bias": [
            {"bias": bias if math.isfinite(bias) else None, "token": token}
            for token, bias in params.logit_bias
        ],
        "n_probs": request.n_probs,
        "min_keep": params.min_keep,
        "grammar": params.grammar,
        "grammar_lazy": False,
        "grammar_triggers": [],
        "preserved_tokens": [],
        "chat_format": asked.chat_format,
        "reasoning_format": asked.reasoning_format,
        "reasoning_in_content": False,
        "generation_prompt": "",
        "samplers": params.samplers,
        "speculative.types": "none",
        "timings_per_token": asked.timings_per_token,
        "post_sampling_probs": request.post_sampling_probs,
        "backend_sampling": asked.backend_sampling,
        "lora": [],
    }
    if short:
        for name in _LONG:
            del told[name]
    return told
