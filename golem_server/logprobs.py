"""What drawn tokens competed with, in the shapes of the API.

A token's entry exists where the text drawn until then ends on a whole character; its text is what
the token released, so that the texts of all entries make up the answer.
"""

from codecs import getincrementaldecoder
from collections.abc import Iterable, Sequence
from typing import Any

from golem_core.sample import Probs
from golem_core.schedule import Result, Step
from golem_core.text.detokenizer import characters

Entry = dict[str, Any]

LOWEST = -3.4028234663852886e38  # what a probability of 0 has for its logarithm


class Entries:
    """The entries of one answer, until they leave with a piece of it.

    after: they hold probabilities among what the sampler left, not logarithms of the model's.
    """

    def __init__(self, tokenizer: Any, after: bool = False):
        self._tokenizer = tokenizer
        self._value, self._top = ("prob", "top_probs") if after else ("logprob", "top_logprobs")
        self._after = after
        self._text = ""  # of tokens that left a character unfinished and have no entry
        self._waiting: list[Entry] = []

    def take(self, step: Step) -> None:
        """Makes the entry of a step, if it has one."""
        if step.probs is None:
            return
        self._text += step.text
        if not step.whole:
            return
        text, self._text = self._text, ""
        top = [one for one in step.probs.top if one[1] > 0 or not self._after]
        self._waiting.append(
            {
                "id": step.token,
                "token": text,
                "bytes": list(text.encode()),
                self._value: max(step.probs.drawn, LOWEST),
                self._top: [self._candidate(*one) for one in top],
            }
        )

    def end(self, result: Result) -> None:
        """The answer is over: tokens that made up a stop text are not part of it."""
        while result.stop_type == "word" and self._waiting and not self._waiting[-1]["token"]:
            self._waiting.pop()

    def release(self) -> list[Entry]:
        """The entries that have not left yet."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def _candidate(self, token: int, value: float) -> Entry:
        raw = self._tokenizer.piece(token)
        text = characters(raw)
        return {
            "id": token,
            "token": text,
            "bytes": list(raw),
            self._value: max(value, LOWEST),
        }


def legacy(entries: Iterable[Entry], start: int, top: int) -> dict[str, list[Any]]:
    """Entries in the shape of ``/v1/completions``: one list for each kind of value.

    start: characters of the choice's text before the first entry. top: competitors to tell.
    """
    shape: dict[str, list[Any]] = {
        "tokens": [],
        "token_logprobs": [],
        "top_logprobs": [],
        "text_offset": [],
    }
    for entry in entries:
        shape["tokens"].append(entry["token"])
        shape["token_logprobs"].append(entry["logprob"])
        best: dict[str, float] = {}
        for one in entry["top_logprobs"][:top]:
            best.setdefault(_name(one), one["logprob"])
        shape["top_logprobs"].append(best)
        shape["text_offset"].append(start)
        start += len(entry["token"])
    return shape


def legacy_prompt(
    tokenizer: Any, tokens: Sequence[int], probs: Sequence[Probs | None], text: str, top: int
) -> dict[str, list[Any]]:
    """A prompt's tokens in the shape of ``legacy``: an entry each, so that they can be counted.

    probs: of each token, None for the first. text: what is echoed of them. What the tokenizer put
    in front, a token or a space, is not in that text and has no width in ``text_offset``.
    """
    decoder, at = getincrementaldecoder("utf-8")("replace"), 0
    shape: dict[str, list[Any]] = {
        "tokens": [],
        "token_logprobs": [],
        "top_logprobs": [],
        "text_offset": [],
    }
    for token, found in zip(tokens, probs, strict=True):
        raw = tokenizer.piece(token, special=True)
        shape["tokens"].append(_named(raw))
        shape["text_offset"].append(at)
        shape["token_logprobs"].append(None if found is None else max(found.drawn, LOWEST))
        best: dict[str, float] = {}
        for one, value in () if found is None else found.top[:top]:
            best.setdefault(_named(tokenizer.piece(one, special=True)), max(value, LOWEST))
        shape["top_logprobs"].append(None if found is None else best)
        fresh = decoder.decode(raw)
        if not text.startswith(fresh, at):
            fresh = fresh.removeprefix(" ")
        at += len(fresh) if text.startswith(fresh, at) else 0
    return shape


def _named(raw: bytes) -> str:
    """What is written for the bytes of a token."""
    return _name({"token": characters(raw), "bytes": raw})


def _name(candidate: Entry) -> str:
    """A candidate's text, or its bytes where they are no text, as OpenAI writes them."""
    raw = bytes(candidate["bytes"])
    if candidate["token"].encode() == raw:
        return candidate["token"]
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
