"""Random requests to every route of a server, and what a whole answer to each looks like.

Whatever is asked greedily twice must be answered with the same text: ``Ask.same`` says what to
compare answers by.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TOPICS = ("rain", "bread", "ships", "winter", "clocks", "maps", "bees", "salt", "glass", "trains")
MOST_TOKENS = 24
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["a"],
}
DRAWN = ("stop", "length", "end_turn", "max_tokens", "completed", "incomplete")


@dataclass(frozen=True)
class Ask:
    """One request.

    kind: for the tally. status: those that are right. text: reads the answer's text out of the
    body, None where something is missing. same: requests that are equal in it have equal texts;
    "" when there is nothing to compare. leaves: a client may hang up on it.
    """

    kind: str
    method: str
    path: str
    body: Any = None
    status: tuple[int, ...] = (200,)
    text: Callable[[bytes], str | None] = lambda body: ""
    same: str = ""
    leaves: bool = True

    @property
    def raw(self) -> bytes:
        """The request as it is sent."""
        payload = b""
        if self.body is not None:
            payload = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        head = f"{self.method} {self.path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        return f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload


def draw(rng: random.Random, models: tuple[str, ...]) -> Ask:
    """A random request. models: names that may be asked for, the likeliest first."""
    model = models[0] if rng.random() < 0.97 or len(models) == 1 else rng.choice(models[1:])
    makers, weights = zip(*_KINDS, strict=True)
    return rng.choices(makers, weights)[0](rng, model)


def prompt(rng: random.Random) -> str:
    return f"Tell me about {rng.choice(TOPICS)}. " + "Be kind. " * rng.choice((0, 3, 40))


# ---- drawing ----


def _chat(rng: random.Random, model: str) -> Ask:
    asked, streamed = prompt(rng), rng.random() < 0.6
    body = _openai(asked, model, streamed) | _extras(rng)
    reader = _events(_chat_delta) if streamed else _chat_whole
    return Ask("chat", "POST", "/v1/chat/completions", body, text=reader, same=_same("chat", body))


def _openai(asked: str, model: str, streamed: bool) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": asked}],
        "temperature": 0,
        "max_tokens": MOST_TOKENS,
        "stream": streamed,
    }


def _extras(rng: random.Random) -> dict[str, Any]:
    """Fields that now and then come along and leave the text as it is."""
    some = [
        {"logprobs": True, "top_logprobs": 2},
        {"timings_per_token": True},
        {"return_progress": True},
        {"stream_options": {"include_usage": True}},
        {"cache_prompt": False},
        {"n": 2},
        {"keep_alive": "5m"},
    ]
    return rng.choice(some) if rng.random() < 0.3 else {}


def _held(rng: random.Random, model: str) -> Ask:
    body = _openai(prompt(rng), model, False) | {
        "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
    }

    def text(raw: bytes) -> str | None:
        found = _chat_whole(raw)
        if found is not None and json.loads(raw)["choices"][0]["finish_reason"] == "length":
            return found if found.lstrip()[:1] in ("", "{") else None  # cut off in the middle
        value = json.loads(found) if found else None
        return found if value and 0 <= value["a"] <= 99 else None

    return Ask("schema", "POST", "/v1/chat/completions", body, text=text, same=_same("held", body))


def _completion(rng: random.Random, model: str) -> Ask:
    asked, streamed = prompt(rng), rng.random() < 0.5
    body = {"model": model, "prompt": asked, "temperature": 0, "max_tokens": MOST_TOKENS}
    body["stream"] = streamed
    reader = _events(lambda e: e["choices"][0]["text"]) if streamed else _completion_whole
    same = _same("completion", body)
    return Ask("completions", "POST", "/v1/completions", body, text=reader, same=same)


def _native(rng: random.Random, model: str) -> Ask:
    asked, streamed = prompt(rng), rng.random() < 0.5
    body = {"model": model, "prompt": asked, "temperature": 0, "n_predict": MOST_TOKENS}
    body |= {"stream": streamed, "n_probs": rng.choice((0, 0, 3))}
    reader = _events(lambda e: e["content"], done="") if streamed else _native_whole
    return Ask("native", "POST", "/completion", body, text=reader, same=_same("completion", body))


def _responses(rng: random.Random, model: str) -> Ask:
    body = {"model": model, "input": prompt(rng), "temperature": 0}
    body["max_output_tokens"] = MOST_TOKENS

    def text(raw: bytes) -> str | None:
        told = json.loads(raw)
        said = [item for item in told["output"] if item["type"] == "message"]
        parts = [part["text"] for item in said for part in item["content"]]
        return "".join(parts) if told["status"] in DRAWN else None

    return Ask("responses", "POST", "/v1/responses", body, text=text, same=_same("chat", body))


def _messages(rng: random.Random, model: str) -> Ask:
    body = _openai(prompt(rng), model, False)

    def text(raw: bytes) -> str | None:
        told = json.loads(raw)
        parts = [block.get("text", "") for block in told["content"]]
        return "".join(parts) if told["stop_reason"] in DRAWN else None

    return Ask("messages", "POST", "/v1/messages", body, text=text, same=_same("chat", body))


def _ollama(rng: random.Random, model: str) -> Ask:
    asked, streamed = prompt(rng), rng.random() < 0.6
    body: dict[str, Any] = {"model": model, "stream": streamed}
    body["options"] = {"temperature": 0, "num_predict": MOST_TOKENS}
    if rng.random() < 0.6:
        body["messages"] = [{"role": "user", "content": asked}]
        path, piece = "/api/chat", lambda told: told["message"]["content"]
    else:
        body["prompt"] = asked
        path, piece = "/api/generate", lambda told: told["response"]

    def text(raw: bytes) -> str | None:
        lines = [json.loads(line) for line in raw.splitlines() if line.startswith(b"{")]
        if not lines or not lines[-1].get("done") or lines[-1]["done_reason"] not in DRAWN:
            return None
        return "".join(map(piece, lines))

    return Ask("ollama", "POST", path, body, text=text, same=f"chat {asked}")


def _unload(rng: random.Random, model: str) -> Ask:
    body = {"model": model, "keep_alive": 0}
    return Ask("unload", "POST", "/api/generate", body)


# ---- not drawing ----


def _get(*paths: str) -> Callable[[random.Random, str], Ask]:
    def make(rng: random.Random, model: str) -> Ask:
        return Ask("look", "GET", rng.choice(paths), leaves=False)

    return make


def _tokens(rng: random.Random, model: str) -> Ask:
    body: dict[str, Any] = {"model": model, "content": prompt(rng), "with_pieces": True}
    path = rng.choice(("/tokenize", "/apply-template", "/v1/chat/completions/input_tokens"))
    if path != "/tokenize":
        body = _openai(prompt(rng), model, False)
    return Ask("tokens", "POST", path, body, leaves=False)


def _vectors(rng: random.Random, model: str) -> Ask:
    path = rng.choice(("/v1/embeddings", "/embedding", "/api/embed"))
    body = {"model": model, "input": prompt(rng)}
    return Ask("vectors", "POST", path, body, status=(200, 501))


def _erase(rng: random.Random, model: str) -> Ask:
    return Ask("erase", "POST", "/slots/0?action=erase", {})


def _wrong(rng: random.Random, model: str) -> Ask:
    wrong = [
        ("POST", "/v1/chat/completions", b"{bad", (400,)),
        ("POST", "/v1/chat/completions", {"messages": []}, (400,)),
        ("POST", "/api/chat", {"messages": [{"role": "user", "content": "x"}]}, (400,)),
        ("POST", "/completion", {"prompt": "x " * 5000}, (400,)),
        ("POST", "/completion", {"prompt": "x", "grammar": "root ::= (("}, (400,)),
        ("POST", "/infill", {"input_prefix": "a", "input_suffix": "b"}, (200, 501)),
        ("GET", "/nothing", None, (404,)),
        ("POST", "/api/pull", {"model": "x"}, (400,)),
    ]
    method, path, body, status = rng.choice(wrong)
    return Ask("wrong", method, path, body, status=status, leaves=False)


_LOOKS = ("/slots", "/props", "/metrics", "/golem", "/golem/records", "/v1/models", "/health")
_KINDS = (
    (_chat, 24),
    (_held, 4),
    (_completion, 8),
    (_native, 12),
    (_responses, 5),
    (_messages, 5),
    (_ollama, 16),
    (_get(*_LOOKS, "/api/tags", "/api/ps", "/api/version", "/"), 12),
    (_tokens, 6),
    (_vectors, 3),
    (_erase, 1),
    (_wrong, 4),
    (_unload, 0.3),
)


# ---- reading answers ----


def _same(what: str, body: dict[str, Any]) -> str:
    """Dialects that give the model the same prompt are compared with each other."""
    asked = body.get("prompt") or body.get("input") or body["messages"][0]["content"]
    return f"{what} {asked}"


def _chat_whole(raw: bytes) -> str | None:
    choice = json.loads(raw)["choices"][0]
    return choice["message"]["content"] if choice["finish_reason"] in DRAWN else None


def _completion_whole(raw: bytes) -> str | None:
    choice = json.loads(raw)["choices"][0]
    return choice["text"] if choice["finish_reason"] in DRAWN else None


def _native_whole(raw: bytes) -> str | None:
    told = json.loads(raw)
    return told["content"] if told["stop"] and told["stop_type"] != "none" else None


def _chat_delta(event: dict[str, Any]) -> str:
    return "".join(
        choice["delta"].get("content") or "" for choice in event["choices"] if choice["index"] == 0
    )


def _events(
    piece: Callable[[dict[str, Any]], str], done: str = "[DONE]"
) -> Callable[[bytes], str | None]:
    """Reads a stream's text; None when its end is missing."""

    def text(raw: bytes) -> str | None:
        found, ended = "", False
        for line in raw.split(b"\n"):
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                found += piece(event)
                ended = ended or event.get("stop") is True
            ended = ended or (bool(done) and line.strip() == f"data: {done}".encode())
        return found if ended else None

    return text
