"""Paths that clients know and this server, as it was started, does not answer: what each needs.

A bare 404 on them would read like a wrong address.
"""

from __future__ import annotations

_CHAT = "a chat model, and none is served; start the server with -model FILE.gguf"
_EMBEDDER = "an embedding or chat model, and none is served; start the server with -embed FILE.gguf"
_LAYA = "a Laya checkpoint, and none is served; start the server with -laya DIR"
_SPEECH = "a speech model, and no installed plugin serves one"
_PICTURES = "a model that makes pictures, and no installed plugin serves one"

_NEEDS = {
    "/v1/chat/completions": _CHAT,
    "/chat/completions": _CHAT,
    "/v1/completions": _CHAT,
    "/completion": _CHAT,
    "/v1/responses": _CHAT,
    "/v1/messages": _CHAT,
    "/api/chat": _CHAT,
    "/api/generate": _CHAT,
    "/v1/embeddings": _EMBEDDER,
    "/api/embed": _EMBEDDER,
    "/v1/rerank": _EMBEDDER,
    "/v1/systemone": _LAYA,
    "/v1/audio/transcriptions": _SPEECH,
    "/v1/audio/translations": _SPEECH,
    "/v1/audio/streams": _SPEECH,
    "/v1/images/generations": _PICTURES,
}


def needs(path: str) -> str:
    """What a path that nothing answers would need; "" for one that golem does not know either."""
    return _NEEDS.get(path, "")
