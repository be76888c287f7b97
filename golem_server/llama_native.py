"""llama-server's own shape of an answer: ``/completion``'s body, and ``__verbose`` of a chat's."""

from collections.abc import Mapping, Sequence
from typing import Any

from golem_core.schedule import Request, Result
from golem_server.llama_settings import Asked, settings
from golem_server.service import Service


class Native:
    """Writes answers of one tokenizer's model."""

    def __init__(self, tokenizer: Any, service: Service):
        self.tokenizer = tokenizer
        self._default_length = service.server.n

    def ended(
        self,
        index: int,
        request: Request,
        result: Result,
        model: str,
        *,
        streamed: bool = False,
        entries: Sequence[Mapping[str, Any]] = (),
    ) -> dict[str, Any]:
        """The object of an answer that ended. streamed: its text and tokens have left before."""
        asked = request.note if isinstance(request.note, Asked) else Asked()
        tokens = list(result.tokens) if asked.return_tokens and not streamed else []
        told = {
            "index": index,
            "content": "" if streamed else result.text,
            "tokens": tokens,
            "id_slot": result.slot,
            "stop": True,
            "model": model,
            "tokens_predicted": result.drawn_tokens,
            "tokens_evaluated": result.prompt_tokens,
            "generation_settings": settings(request, self._default_length),
            "prompt": self.text(request.tokens),
            "has_new_line": result.has_new_line,
            "truncated": result.truncated,
            "stop_type": result.stop_type,
            "stopping_word": result.stopping_word,
            "tokens_cached": result.slot_tokens,
            "timings": result.timings(),
        }
        return told | ({"completion_probabilities": list(entries)} if entries else {})

    def text(self, tokens: Sequence[int]) -> str:
        """Ids as text, control tokens written out and bytes that are no text as U+FFFD."""
        return decode(self.tokenizer, tokens)


def decode(tokenizer: Any, tokens: Sequence[int]) -> str:
    """Ids as llama-server shows them: control tokens written out, half characters as U+FFFD."""
    return tokenizer.decode_bytes(tokens, special=True).decode("utf-8", "replace")


def chosen(answer: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """The members of an answer that ``response_fields`` names.

    A path into an object ("timings/cache_n") is the name of what it leads to; what is not there
    is left out.
    """
    found = {}
    for path in paths:
        value: Any = answer
        for part in path.split("/"):
            value = value.get(part, _NOTHING) if isinstance(value, Mapping) else _NOTHING
        if value is not _NOTHING:
            found[path] = value
    return found


_NOTHING = object()
