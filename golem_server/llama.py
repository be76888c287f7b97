"""llama-server's own routes: registered here, served by the modules beside this one."""

import falcon

from golem_server import embeddings
from golem_server.body import read_object
from golem_server.errors import JSON, encode
from golem_server.llama_completion import Completion, Infill
from golem_server.llama_props import LoraAdapters, Props
from golem_server.llama_slots import Slot, Slots
from golem_server.llama_text import ApplyTemplate, Detokenize, InputTokens, Tokenize
from golem_server.service import Service


def add_routes(app: falcon.App, service: Service) -> None:
    """Adds the routes that a service with a chat model has."""
    limit = service.server.max_body
    for path in ("/completion", "/completions"):
        app.add_route(path, Completion(service, limit))
    app.add_route("/infill", Infill(service, limit))
    app.add_route("/tokenize", Tokenize(service, limit))
    app.add_route("/detokenize", Detokenize(service, limit))
    app.add_route("/apply-template", ApplyTemplate(service, limit))
    for path in ("/v1/chat/completions", "/chat/completions"):
        app.add_route(path + "/input_tokens", InputTokens(service, limit))
    app.add_route("/props", Props(service))
    app.add_route("/slots", Slots(service))
    app.add_route("/slots/{slot}", Slot(service, limit))
    app.add_route("/lora-adapters", LoraAdapters(limit))
    for path in ("/tools", "/cors-proxy"):
        app.add_route(path, Disabled())


class Embedding:
    """``POST /embedding``, ``/embeddings``."""

    def __init__(self, service: Service, max_body: int):
        self.service = service
        self.max_body = max_body

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        embeddings.native(self.service, req, resp, read_object(req, self.max_body))


class Disabled:
    """Features of llama-server's own that are off there too unless somebody asks for them."""

    BODY = encode({"error": {"message": "this feature is disabled", "type": "feature_disabled"}})

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.status = 403
        resp.content_type = JSON
        resp.data = self.BODY

    on_post = on_get
