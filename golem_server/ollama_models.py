"""Ollama's routes about models: which there are, what one is, and making one of another."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import falcon
import msgspec

from golem_server.card import Card
from golem_server.derived import Derived
from golem_server.embed_ollama import read_request as read_body
from golem_server.errors import JSON, Refusal, encode
from golem_server.modelfile import read_modelfile
from golem_server.ollama import check_template
from golem_server.ollama_answer import NDJSON, line, rfc3339
from golem_server.ollama_choice import choose, store
from golem_server.ollama_names import canonical, tagged
from golem_server.ollama_options import read_options
from golem_server.ollama_request import conversation
from golem_server.residency import Resident
from golem_server.schema import typed
from golem_server.service import Service

FOREVER_SECONDS = 292 * 365.25 * 86400  # what Ollama says of a model that stays for ever
VERSION = "0.13.5"  # of Ollama, whose features clients look for by it
MADE_OF = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "seed",
    "num_ctx",
    "num_predict",
    "repeat_penalty",
    "repeat_last_n",
    "presence_penalty",
    "frequency_penalty",
    "stop",
)
ANY_SLOT = 1 << 31  # a made model's num_ctx is compared with the slot when it is used


class Version:
    """``GET /api/version``."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.content_type = JSON
        resp.data = encode({"version": VERSION})


class Running:
    """``GET`` and ``HEAD /``."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.content_type = "text/plain; charset=utf-8"
        resp.data = b"Ollama is running"

    on_head = on_get


class _Resource:
    def __init__(self, service: Service, max_body: int):
        self.service = service
        self.max_body = max_body

    def _named(self, body: Mapping[str, Any]) -> str:
        name = body.get("model") or body.get("name")
        if not isinstance(name, str) or not name:
            raise Refusal("model is required")
        return name


# ---- listings ----


def listed(card: Card, derived: Derived | None = None) -> dict[str, Any]:
    """A model as ``/api/tags`` lists it."""
    name = tagged(derived.name if derived else card.name)
    modified = round(derived.created * 1e9) if derived else card.modified
    return {
        "name": name,
        "model": name,
        "modified_at": rfc3339(modified),
        "size": card.size,
        "digest": derived.digest if derived else card.digest,
        "details": card.details | ({"parent_model": tagged(card.name)} if derived else {}),
        "capabilities": list(card.can),
        "golem": {
            "playable": not card.reason,
            "reason": card.reason,
            "pinned": card.pinned,
            "file": str(card.path),
        },
    }


class Tags:
    """``GET /api/tags``."""

    def __init__(self, service: Service):
        self.service = service

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        service = self.service
        cards = [service.card(entry) for entry in service.entries()] if service.chats else []
        by_name = {card.name: card for card in cards}
        told = [listed(card) for card in cards]
        for one in service.derived.all() if service.derived else ():
            if one.base in by_name:
                told.append(listed(by_name[one.base], one))
        if (card := service.embedder) is not None:
            told.append(listed(card))
        resp.content_type = JSON
        resp.data = encode({"models": told})


class Loaded:
    """``GET /api/ps``."""

    def __init__(self, service: Service):
        self.service = service

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        told = [self._resident(resident) for resident in self.service.residency.residents()]
        card, embedding = self.service.embedder, self.service.embedding
        if card is not None and embedding is not None:
            told.append(self._one(card, FOREVER_SECONDS, embedding.context))
        resp.content_type = JSON
        resp.data = encode({"models": told})

    def _resident(self, resident: Resident) -> dict[str, Any]:
        card = self.service.card(resident.entry)
        engine = self.service.residency.engine(card.name)
        return self._one(card, resident.expires_in, engine.context if engine else 0)

    def _one(self, card: Card, seconds: float, context: int) -> dict[str, Any]:
        told = listed(card)
        expires = datetime.now(UTC) + timedelta(seconds=min(seconds, FOREVER_SECONDS))
        return {name: told[name] for name in ("name", "model", "size", "digest", "details")} | {
            "expires_at": expires.isoformat().replace("+00:00", "Z"),
            "size_vram": 0,
            "context_length": context,
        }


class Show(_Resource):
    """``POST /api/show``."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        body = read_body(req, self.max_body)
        card, derived = self._card(self._named(body))
        template = derived.template if derived and derived.template else card.template
        parameters = dict(derived.parameters) if derived else {}
        hidden = ("general.name", "tokenizer.chat_template")
        info = {key: value for key, value in card.info.items() if key not in hidden}
        info.setdefault("general.architecture", card.architecture)
        told: dict[str, Any] = {
            "modelfile": _modelfile(card, derived, template),
            "parameters": _lines(parameters),
            "template": template,
            "details": listed(card, derived)["details"],
            "model_info": info,
            "capabilities": list(card.can),
            "modified_at": listed(card, derived)["modified_at"],
            "golem": listed(card)["golem"],
        }
        if derived:
            told |= {"system": derived.system} if derived.system else {}
            told |= {"messages": derived.messages} if derived.messages else {}
            told |= {"license": derived.license} if derived.license else {}
        resp.content_type = JSON
        resp.data = encode(told)

    def _card(self, name: str) -> tuple[Card, Derived | None]:
        own = self.service.embedder
        if own is not None and (canonical(name) == canonical(own.name) or not self.service.chats):
            return own, None
        entry, derived = choose(self.service, name)
        return self.service.card(entry), derived


def _lines(parameters: Mapping[str, Any]) -> str:
    """Parameters as a Modelfile has them, a line each."""
    lines = []
    for name, value in parameters.items():
        for one in value if isinstance(value, list) else [value]:
            shown = json.dumps(one, ensure_ascii=False) if isinstance(one, str) else one
            lines.append(f"{name:<30} {shown}")
    return "\n".join(lines)


def _modelfile(card: Card, derived: Derived | None, template: str) -> str:
    parts = [
        '# Modelfile generated by "golem"',
        f"FROM {derived.base if derived else card.path}",
        f'TEMPLATE """{template}"""',
    ]
    if derived:
        parts += [f'SYSTEM """{derived.system}"""'] if derived.system else []
        parts += [f"PARAMETER {one}" for one in _lines(derived.parameters).splitlines()]
        parts += [f"MESSAGE {m['role']} {m.get('content', '')}" for m in derived.messages]
        parts += [f'LICENSE """{derived.license}"""'] if derived.license else []
    return "\n".join(parts) + "\n"


# ---- making ----


class CreateAsked(msgspec.Struct, rename={"base": "from"}):
    """``POST /api/create``."""

    model: str | None = None
    name: str | None = None
    base: str | None = None
    modelfile: str | None = None
    files: Any = None
    adapters: Any = None
    quantize: Any = None
    template: str | None = None
    license: str | list[str] | None = None
    system: str | None = None
    parameters: dict[str, Any] | None = None
    messages: list[Any] | None = None
    stream: bool | None = None


class Create(_Resource):
    """``POST /api/create``."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        body = read_body(req, self.max_body)
        if isinstance(body.get("modelfile"), str):
            body = read_modelfile(body["modelfile"]) | body
        asked = typed(CreateAsked, body)
        derived = self._made(asked)
        store(self.service).put(derived)
        told = [
            {"status": f"using existing layer sha256:{derived.base_digest}"},
            {"status": "writing manifest"},
            {"status": "success"},
        ]
        if asked.stream is False:
            resp.content_type = JSON
            resp.data = encode(told[-1])
            return
        resp.content_type = NDJSON
        resp.data = b"".join(map(line, told))

    def _made(self, asked: CreateAsked) -> Derived:
        store(self.service)
        name = asked.model or asked.name
        if not name:
            raise Refusal("model is required")
        key = _free(self.service, name, "model")
        for field in ("files", "adapters", "quantize"):
            if getattr(asked, field):
                raise Refusal(
                    f'"{field}" is not implemented: weights are added on the server, with '
                    "golem-models add"
                )
        if not asked.base:
            raise Refusal("neither 'from' or 'files' was specified")
        entry, base = choose(self.service, asked.base)
        parameters = (base.parameters if base else {}) | _parameters(asked.parameters)
        if asked.template:
            check_template(asked.template)
        conversation(asked.messages or [], None)  # checks them
        license = asked.license
        return Derived(
            name=tagged(name),
            key=key,
            base=entry.name,
            base_digest=self.service.card(entry).digest,
            system=_over(asked.system, base and base.system),
            template=_over(asked.template, base and base.template),
            license=_over(
                "\n".join(license) if isinstance(license, list) else license, base and base.license
            ),
            parameters=parameters,
            messages=asked.messages or (base.messages if base else []),
            created=time.time(),
        )


def _over(given: str | None, inherited: str | None) -> str:
    return given if given is not None else inherited or ""


def _parameters(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Parameters that a made model may have, checked."""
    parameters = dict(given or {})
    if isinstance(parameters.get("stop"), str):
        parameters["stop"] = [parameters["stop"]]
    for name in parameters:
        if name not in MADE_OF:
            raise Refusal(
                f'parameter "{name[:50]}" is none that a model can be made with; there are '
                f"{', '.join(MADE_OF)}"
            )
    read_options(parameters, ANY_SLOT)
    return parameters


def _free(service: Service, name: str, what: str) -> str:
    """The canonical form of a name that a made model may have.

    Raises:
        Refusal: for what is no name, or is a pinned model's.
    """
    key = canonical(name)
    if key is None:
        raise Refusal(f'{what} "{name[:100]}" is invalid')
    if any(canonical(entry.name) == key for entry in service.entries()):
        raise Refusal(f'{what} "{name}" is a pinned model: choose another name')
    return key


class Copy(_Resource):
    """``POST /api/copy``."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        body = read_body(req, self.max_body)
        kept = store(self.service)
        source, target = (body.get(name) for name in ("source", "destination"))
        for what, name in (("source", source), ("destination", target)):
            if not isinstance(name, str) or canonical(name) is None:
                raise Refusal(f'{what} "{name if isinstance(name, str) else ""}" is invalid')
        key = _free(self.service, target, "destination")
        try:
            entry, derived = choose(self.service, source)
        except Refusal as error:
            if error.status == 404:
                raise Refusal(f'model "{source}" not found', "not_found_error") from None
            raise
        if derived is None:
            digest = self.service.card(entry).digest
            derived = Derived(tagged(target), key, entry.name, digest)
        kept.put(replace(derived, name=tagged(target), key=key, created=time.time()))


class Delete(_Resource):
    """``DELETE /api/delete``."""

    def on_delete(self, req: falcon.Request, resp: falcon.Response) -> None:
        name = self._named(read_body(req, self.max_body))
        kept = store(self.service)
        key = canonical(name)
        if key is not None and kept.remove(key):
            return
        if any(canonical(entry.name) == key for entry in self.service.entries()):
            raise Refusal(
                f'model "{name}" is a pinned file, which is not deleted over the network: '
                "golem-models unpin"
            )
        raise Refusal(f"model '{name}' not found", "not_found_error")


# ---- what is not done here ----


class NotDone(_Resource):
    """A route that is refused by name."""

    def __init__(self, service: Service, max_body: int, message: str):
        super().__init__(service, max_body)
        self.message = message

    def on_post(self, req: falcon.Request, resp: falcon.Response, **_: str) -> None:
        raise Refusal(self.message)

    on_head = on_post


NO_PULL = (
    "this server fetches no models: put the file into the folder of -models and pin it with "
    "golem-models add"
)
NO_PUSH = "this server sends models nowhere"
NO_BLOBS = "this server takes no files over the network: add them with golem-models add"


def add_routes(app: falcon.App, service: Service) -> None:
    """The routes about models. Of vectors alone there is nothing to make another one of."""
    limit = service.server.max_body
    app.add_route("/api/version", Version())
    app.add_route("/api/tags", Tags(service))
    app.add_route("/api/ps", Loaded(service))
    app.add_route("/api/show", Show(service, limit))
    if service.chats:
        app.add_route("/api/create", Create(service, limit))
        app.add_route("/api/copy", Copy(service, limit))
        app.add_route("/api/delete", Delete(service, limit))
    app.add_route("/api/pull", NotDone(service, limit, NO_PULL))
    app.add_route("/api/push", NotDone(service, limit, NO_PUSH))
    app.add_route("/api/blobs/{digest}", NotDone(service, limit, NO_BLOBS))
