"""The WSGI application: routes, guards, and one shape for every error."""

import sys
import traceback

import falcon

from golem_core.sample import ParamError
from golem_core.schedule import ScheduleError
from golem_core.text.template import TemplateError
from golem_server import anthropic, health, models, openai, responses
from golem_server.access_log import NOTE, AccessLog
from golem_server.errors import ClientGone, Refusal, answer, as_refusal, encode, of_falcon
from golem_server.guards import Guards
from golem_server.service import Service

# Errors that are answers; anything else is a mistake of golem's and leaves a traceback.
EXPECTED = (Refusal, ParamError, ScheduleError, TemplateError)


def create_app(service: Service) -> "Application":
    """The application that serves a service, in whatever phase of life that is.

    Raises:
        SettingsError: when the file of keys cannot be used.
    """
    app = falcon.App(middleware=[Guards(service)])
    app.add_error_handler(Exception, _handle)
    app.add_error_handler(falcon.HTTPError, _handle_falcon)
    app.add_error_handler(ClientGone, _handle_gone)

    whole = health.Health(service)
    for path in ("/health", "/v1/health", "/health/ready"):
        app.add_route(path, whole)
    app.add_route("/health/live", health.Live())

    for path in ("/v1/models", "/models"):
        app.add_route(path, models.Models(service))
        app.add_route(path + "/{name:path}", models.Model(service))
    if service.chats:
        limit = service.server.max_body
        for path in ("/v1/chat/completions", "/chat/completions"):
            app.add_route(path, openai.ChatCompletions(service, limit))
        app.add_route("/v1/completions", openai.Completions(service, limit))
        app.add_route("/v1/responses", responses.Responses(service, limit))
        app.add_route(anthropic.PATH, anthropic.Messages(service, limit))
        app.add_route(anthropic.PATH + "/count_tokens", anthropic.CountTokens(service, limit))
    service.attach(app.add_route)
    return Application(app, service)


class Application(AccessLog):
    """The application as a server runs it, with the service it belongs to."""

    def __init__(self, app: falcon.App, service: Service):
        super().__init__(app, prompts=service.server.log_prompts)
        self.service = service
        self.falcon = app


def _refuse(req: falcon.Request, resp: falcon.Response, refusal: Refusal) -> None:
    req.env[NOTE].refusal = refusal.logged
    answer(resp, refusal)
    if req.path.startswith(anthropic.PATH):
        resp.data = encode(anthropic.error_body(refusal))


def _handle(req: falcon.Request, resp: falcon.Response, error: Exception, params: dict) -> None:
    if not isinstance(error, EXPECTED):
        traceback.print_exception(error, file=sys.stderr)
    _refuse(req, resp, as_refusal(error))


def _handle_falcon(
    req: falcon.Request, resp: falcon.Response, error: falcon.HTTPError, params: dict
) -> None:
    _refuse(req, resp, of_falcon(error))


def _handle_gone(
    req: falcon.Request, resp: falcon.Response, error: ClientGone, params: dict
) -> None:
    resp.status = "499 Client Closed Request"
    resp.data = b""
