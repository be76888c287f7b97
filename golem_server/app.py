"""The WSGI application: routes, guards, and one shape for every error."""

import sys
import traceback
from collections.abc import Callable
from typing import Any

import falcon
from falcon.routing import CompiledRouter

from golem_core.sample import ParamError
from golem_core.schedule import ScheduleError
from golem_core.text.template import TemplateError
from golem_server import (
    anthropic,
    embed_ollama,
    embeddings,
    health,
    llama,
    metrics,
    models,
    ollama,
    ollama_models,
    openai,
    records,
    responses,
)
from golem_server.absent import needs
from golem_server.access_log import NOTE, AccessLog
from golem_server.disconnect import client_gone
from golem_server.errors import (
    ClientGone,
    Refusal,
    answer,
    as_refusal,
    encode,
    not_found,
    of_falcon,
)
from golem_server.guards import Guards
from golem_server.service import Service

# Errors that are answers; anything else is a mistake of golem's and leaves a traceback.
EXPECTED = (Refusal, ParamError, ScheduleError, TemplateError)


def create_app(service: Service) -> "Application":
    """The application that serves a service, in whatever phase of life that is.

    Raises:
        SettingsError: when the file of keys cannot be used.
    """
    guards = Guards(service)
    app = falcon.App(middleware=[_Context(), guards], router=Router())
    errors = Errors()
    errors.words(anthropic.PATH, anthropic.error_body)
    errors.words("/api/", embed_ollama.error_body)
    app.add_error_handler(Exception, errors.handle)
    app.add_error_handler(falcon.HTTPError, errors.handle_falcon)
    app.add_error_handler(ClientGone, errors.handle_gone)

    whole = health.Health(service, guards.knows)
    for path in ("/health", "/v1/health", "/health/ready"):
        app.add_route(path, whole)
    app.add_route("/health/live", health.Live())

    for path in ("/v1/models", "/models"):
        app.add_route(path, models.Models(service))
        app.add_route(path + "/{name:path}", models.Model(service))
    limit = service.server.max_body
    if service.chats or service.server.embed is not None:
        app.add_route("/v1/embeddings", embeddings.Embeddings(service, limit))
        app.add_route("/api/embed", embed_ollama.Embed(service, limit))
        app.add_route("/api/embeddings", embed_ollama.EmbedOne(service, limit))
        for path in ("/embedding", "/embeddings"):
            app.add_route(path, llama.Embedding(service, limit))
        for path in ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking"):
            app.add_route(path, embeddings.Rerank(service, limit))
        ollama_models.add_routes(app, service)
    if service.chats:
        for path in ("/v1/chat/completions", "/chat/completions"):
            app.add_route(path, openai.ChatCompletions(service, limit))
        app.add_route("/v1/completions", openai.Completions(service, limit))
        app.add_route("/v1/responses", responses.Responses(service, limit))
        app.add_route("/v1/responses/input_tokens", responses.InputTokens(service, limit))
        app.add_route(anthropic.PATH, anthropic.Messages(service, limit))
        app.add_route(anthropic.PATH + "/count_tokens", anthropic.CountTokens(service, limit))
        llama.add_routes(app, service)
        app.add_route("/api/chat", ollama.Chat(service, limit))
        app.add_route("/api/generate", ollama.Generate(service, limit))
    app.add_route("/", ollama_models.Running())
    app.add_route("/metrics", metrics.Metrics(service))
    app.add_route("/golem", records.About(service))
    app.add_route("/golem/records", records.LastAnswers(service))

    def add_route(template: str, resource: Any) -> None:
        app.add_route(template, resource)
        if hasattr(resource, "error_body"):
            errors.words(template, resource.error_body)

    service.attach(add_route)
    return Application(app, service, errors)


class Application(AccessLog):
    """The application as a server runs it, with the service it belongs to."""

    def __init__(self, app: falcon.App, service: Service, errors: "Errors"):
        super().__init__(app, prompts=service.server.log_prompts)
        self.errors = errors
        self.service = service
        self.falcon = app


class _Context:
    """Middleware: what a resource may ask about its request."""

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        req.context.gone = client_gone(req.env)  # says whether the client has hung up


class Router(CompiledRouter):
    """Whatever answers GET answers HEAD, with the same status and headers and no body."""

    def map_http_methods(self, resource: object, **arguments: Any) -> dict[str, Any]:
        methods = super().map_http_methods(resource, **arguments)
        return {"HEAD": methods["GET"], **methods} if "GET" in methods else methods


class Errors:
    """Every error as a response, in the words of the dialect whose path it happened on."""

    def __init__(self) -> None:
        self._bodies: list[tuple[str, Callable[[Refusal], Any]]] = []

    def words(self, prefix: str, body: Callable[[Refusal], Any]) -> None:
        """Refusals on paths that begin so have the body that this makes of them."""
        self._bodies.append((prefix, body))

    def body(self, path: str, refusal: Refusal) -> bytes:
        """What a refusal says on a path."""
        for prefix, words in self._bodies:
            if path.startswith(prefix):
                return encode(words(refusal))
        return encode(refusal.body())

    def _refuse(self, req: falcon.Request, resp: falcon.Response, refusal: Refusal) -> None:
        req.env[NOTE].refusal = refusal.logged
        answer(resp, refusal)
        resp.data = self.body(req.path, refusal)

    def handle(
        self, req: falcon.Request, resp: falcon.Response, error: Exception, params: dict
    ) -> None:
        if not isinstance(error, EXPECTED):
            traceback.print_exception(error, file=sys.stderr)
        self._refuse(req, resp, as_refusal(error))

    def handle_falcon(
        self, req: falcon.Request, resp: falcon.Response, error: falcon.HTTPError, params: dict
    ) -> None:
        refusal = of_falcon(error)
        if isinstance(error, falcon.HTTPRouteNotFound):
            refusal = not_found(needs(req.path))
        if error.status_code == 405 and req.path.startswith("/api/"):
            refusal = Refusal("405 method not allowed", "not_found_error", status=405)
        self._refuse(req, resp, refusal)

    def handle_gone(
        self, req: falcon.Request, resp: falcon.Response, error: ClientGone, params: dict
    ) -> None:
        resp.status = "499 Client Closed Request"
        resp.data = b""
