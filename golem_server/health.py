"""Whether the server lives, and whether it can answer: for balancers and supervisors."""

from collections.abc import Callable

import falcon

from golem_server.errors import JSON, answer, encode
from golem_server.service import Phase, Service


class Health:
    """``GET /health``: 503 while the model is loaded, when its file was changed under the server,
    and while the server shuts down.

    knows: whether a request carries a key; without one it hears nothing of what capabilities tell.
    """

    def __init__(self, service: Service, knows: Callable[[falcon.Request], bool]):
        self.service = service
        self.knows = knows

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        phase = self.service.phase
        if phase is Phase.LOADING:
            answer(resp, self.service.unavailable())
            return
        status = {"status": "ok" if phase is Phase.READY else phase.value}
        if phase is Phase.READY and (reason := self.service.broken):
            status = {"status": "failed", "reason": reason}
        elif phase is Phase.READY and self.service.health and self.knows(req):
            status |= self.service.health
        resp.content_type = JSON
        resp.status = 200 if status["status"] == "ok" else 503
        resp.data = encode(status)


class Live:
    """``GET /health/live``: 200 as long as the process serves at all."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.content_type = JSON
        resp.data = encode({"status": "ok"})
