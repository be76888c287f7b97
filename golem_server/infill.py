"""Prompts of models that fill a gap: what comes before it, what comes after it, other files.

The order and the shares of the parts are llama-server's; the words between files are those that
Qwen's coders were trained on, where the vocabulary has their tokens.
"""

from collections.abc import Mapping
from typing import Any

from golem_core.schedule import Engine
from golem_server.body import json_type
from golem_server.card import fim_tokens
from golem_server.errors import Refusal
from golem_server.prompts import encode_elements, read_prompts
from golem_server.schema import NativeRequest

BATCH = 2048  # positions that the text around the gap may take, three quarters of them before it
SNIPPET = "\n\n--- snippet ---\n\n"
_MISSING = (("prefix", "fim_pre"), ("suffix", "fim_suf"), ("middle", "fim_mid"))


def gap_prompt(engine: Engine, request: NativeRequest) -> list[int]:
    """The ids of an ``/infill`` request.

    Raises:
        Refusal: for a model that fills no gaps, or a field that is wrong.
    """
    tokenizer = engine.model.tokenizer
    if fim_tokens(tokenizer) is None:
        missing = "".join(
            f"{name} token is missing. "
            for name, attribute in _MISSING
            if getattr(tokenizer, attribute, None) is None
        )
        raise Refusal(f"Infill is not supported by this model: {missing}", "not_supported_error")
    for name in ("input_prefix", "input_suffix"):
        if getattr(request, name) is None:
            raise Refusal(f'"{name}" is required')
    drawn: list[int] = []
    if request.prompt not in (None, ""):
        several = read_prompts(request.prompt, most=1)
        if len(several) > 1:
            raise Refusal('"prompt" must be one text or one list of tokens here')
        drawn = encode_elements(tokenizer, several[0], add_special=False)
    extra = _extra(request.input_extra)
    length = _room(request.length, engine)
    return fill(
        tokenizer,
        request.input_prefix,
        request.input_suffix,
        drawn=drawn,
        extra=extra,
        context=engine.context,
        length=length,
    )


def _room(length: int | None, engine: Engine) -> int:
    """Tokens that an answer may take of the context, a quarter of it where nobody says."""
    return engine.context // 4 if length is None or length < 0 else length


def fill(
    tokenizer: Any,
    before: str,
    after: str,
    *,
    context: int,
    length: int,
    drawn: list[int] | None = None,
    extra: list[tuple[str, str]] | None = None,
) -> list[int]:
    """The ids of a prompt around a gap.

    drawn: what the gap begins with. extra: names and texts of other files. context: positions of
    the slot, of which ``length`` are for the answer. What does not fit is left out: the beginning
    of the text before the gap, the end of the one after it, the beginning of the files.
    """
    drawn = drawn or []
    before_gap, after_gap, middle = fim_tokens(tokenizer)
    batch = max(8, min(BATCH, context - length))
    prefix = _plain(tokenizer, before)
    prefix = prefix[max(0, len(prefix) - 3 * (batch // 4)) :]
    suffix = _plain(tokenizer, after)[: max(0, batch // 4 - (2 + len(drawn)))]
    files = _files(tokenizer, extra or [])
    kept = max(0, min(len(files), context - batch - 2 * length))
    opening = [tokenizer.bos] if tokenizer.add_bos and tokenizer.bos is not None else []
    around = [before_gap, *prefix, *drawn, after_gap, *suffix, middle]
    return [*files[len(files) - kept :], *opening, *around]


def _files(tokenizer: Any, extra: list[tuple[str, str]]) -> list[int]:
    repository, separator = (getattr(tokenizer, f"fim_{part}", None) for part in ("rep", "sep"))
    ids: list[int] = []
    if repository is not None:
        ids += [repository, *_plain(tokenizer, "myproject\n")]
    for name, text in extra:
        if separator is None:
            ids += _plain(tokenizer, SNIPPET)
        else:
            ids += [separator, *_plain(tokenizer, f"{name}\n")]
        ids += _plain(tokenizer, text)
    if separator is not None:
        ids += [separator, *_plain(tokenizer, "filename\n")]
    return ids


def _plain(tokenizer: Any, text: str) -> list[int]:
    return tokenizer.encode(text, add_special=False, parse_special=False)


def _extra(given: Any) -> list[tuple[str, str]]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise Refusal(
            f'"input_extra" must be an array of {{"filename", "text"}}, it is {json_type(given)}'
        )
    return [_one(place, item) for place, item in enumerate(given)]


def _one(place: int, item: Any) -> tuple[str, str]:
    text = item.get("text") if isinstance(item, Mapping) else None
    name = item.get("filename", "tmp") if isinstance(item, Mapping) else None
    if not isinstance(text, str) or not isinstance(name, str):
        raise Refusal(
            f'"input_extra" {place} needs a "text" and may have a "filename", both strings'
        )
    return name, text
