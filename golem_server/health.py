"""Whether the server lives, and whether it can answer: for balancers and supervisors."""

import falcon

from golem_server.errors import JSON, answer, encode
from golem_server.service import Phase, Service


class Health:
    """``GET /health``: 503 while the model is loaded or the server shuts down."""

    def __init__(self, service: Service):
        self.service = service

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        phase = self.service.phase
        if phase is Phase.LOADING:
            answer(resp, self.service.unavailable())
            return
        resp.content_type = JSON
        if phase is Phase.READY:
            resp.data = encode({"status": "ok"})
        else:
            resp.status = 503
            resp.data = encode({"status": phase.value})

    on_head = on_get


class Live:
    """``GET /health/live``: 200 as long as the process serves at all."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.content_type = JSON
        resp.data = encode({"status": "ok"})

    on_head = on_get
