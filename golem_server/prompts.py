"""Prompts that are no conversations: a text, ids, a mix of both, or several of these."""

import itertools
from typing import Any

from golem_core.schedule import ContextExceeded
from golem_server.errors import Refusal

FEW = 16  # characters a token; no vocabulary's mean is as many


def wrong(field: str) -> Refusal:
    """What is no text in any of the ways a field may hold one."""
    return Refusal(
        f'"{field}" elements must be a string, a list of tokens, a JSON object containing a prompt '
        "string, or a list of mixed strings & tokens."
    )


def read_prompts(given: Any, most: int) -> list[list[str | int]]:
    """The prompts of a ``prompt`` field, each a list of texts and ids in order.

    most: as many as may ever be answered at once.

    Raises:
        Refusal: for anything that is no prompt, and for more of them.
    """
    if given is None:
        raise Refusal('"prompt" is required')
    if given == []:
        raise Refusal('"prompt" must not be empty')
    if isinstance(given, str | dict):
        return [_elements(given)]
    if not isinstance(given, list):
        raise wrong("prompt")
    if any(_is_id(item) for item in given):
        return [_elements(given)]
    if len(given) > most:
        raise too_many(len(given), most)
    return [_elements(item) for item in given]


def too_many(answers: int, most: int) -> Refusal:
    """More answers in one request than could ever run and wait."""
    return Refusal(
        f"this request asks for {answers} answers, and the server takes at most {most} at a time, "
        "running and waiting: send several requests, or start it with a larger -queue"
    )


def _is_id(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _elements(given: Any) -> list[str | int]:
    if isinstance(given, dict):
        if given.get("multimodal_data"):
            raise Refusal(
                '"multimodal_data" is not read here: send pictures and sounds as parts of a '
                "message to /v1/chat/completions"
            )
        given = given.get("prompt_string")
        if not isinstance(given, str):
            raise wrong("prompt")
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not all(_is_id(i) or isinstance(i, str) for i in given):
        raise wrong("prompt")
    if not given:
        raise Refusal('"prompt" must not be empty')
    return given


def refuse_overlong(tokenizer: Any, context: int, characters: int) -> None:
    """Refuse a text that cannot fit, however it is cut into tokens, before it is.

    Cutting megabytes takes seconds, which the answer would not change.

    Raises:
        ContextExceeded: with the fewest tokens that it can be.
    """
    if characters < FEW * context:  # nobody needs to look at the vocabulary
        return
    fewest = -(-characters // max(1, tokenizer.longest))
    if fewest >= context:
        raise ContextExceeded(fewest, context, counted=False)


def encode_prompt(tokenizer: Any, elements: list[str | int], context: int) -> list[int]:
    """``encode_elements`` of a prompt that has to fit into a slot.

    Raises:
        Refusal: for an id outside the vocabulary.
        ContextExceeded: at once for what is far too long.
    """
    characters = sum(len(item) for item in elements if isinstance(item, str))
    ids = sum(not isinstance(item, str) for item in elements)
    if ids >= context:
        raise ContextExceeded(ids, context, counted=ids == len(elements))
    refuse_overlong(tokenizer, context, characters)
    return encode_elements(tokenizer, elements)


def encode_elements(
    tokenizer: Any, elements: list[str | int], *, add_special: bool = True
) -> list[int]:
    """The ids of a prompt; a text at its beginning gets the special tokens of one.

    Raises:
        Refusal: for an id outside the vocabulary.
    """
    tokens: list[int] = []
    for place, item in enumerate(elements):
        if isinstance(item, str):
            first = add_special and place == 0
            tokens += tokenizer.encode(item, add_special=first, parse_special=True)
        elif 0 <= item < tokenizer.n_vocab:
            tokens.append(item)
        else:
            raise Refusal("Prompt contains invalid tokens")
    return tokens


def text_of(tokenizer: Any, elements: list[str | int]) -> str:
    """A prompt as text, for ``echo``."""
    parts = []
    for is_text, group in itertools.groupby(elements, lambda item: isinstance(item, str)):
        run = list(group)
        parts += run if is_text else [tokenizer.decode(run, special=True)]
    return "".join(parts)
