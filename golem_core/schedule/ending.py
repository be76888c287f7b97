"""Where the last message of a conversation begins: a memory that cannot be rewound is kept there.

The next conversation is often this one with another last message. Chat templates say nowhere where
they wrote it, so the conversation is written once more with another text in its place: what both
have in common is what comes before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from golem_core.state.stored import common_prefix
from golem_core.text.errors import TemplateError
from golem_core.text.rendered import encode_rendered

_OTHERS = "-+"  # texts that some message is not; no template treats them in a way of its own


def ending(
    model: Any,
    messages: Sequence[dict[str, Any]],
    text: str,
    tokens: Sequence[int],
    render: Callable[[Sequence[dict[str, Any]]], str],
) -> int | None:
    """Tokens of a prompt from the text of the user's last message on, for Request.ending.

    text, tokens: the prompt. render: how ``messages`` became the text. None for a model that can
    be rewound, without a message of the user's and where it holds more than text.
    """
    if not model.executor.states.recurrent:
        return None
    at = max((i for i, one in enumerate(messages) if one["role"] == "user"), default=-1)
    content = messages[at]["content"] if at >= 0 else None
    if not isinstance(content, str):
        return None
    other = _OTHERS[content.lstrip().startswith(_OTHERS[0])]
    try:
        changed = render([*messages[:at], {**messages[at], "content": other}, *messages[at + 1 :]])
    except TemplateError:  # the prompt stands; only where to keep a copy is left to the guess
        return None
    pairs = enumerate(zip(text, changed, strict=False))
    begins = next((i for i, (mine, others) in pairs if mine != others), len(text))
    before = encode_rendered(model.tokenizer, text[:begins])
    shared = common_prefix(np.asarray(before, np.int32), np.asarray(tokens, np.int32))
    return len(tokens) - shared
