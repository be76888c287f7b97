"""``GET /golem`` and ``/golem/records``: what is served, and the last answers in numbers."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import falcon

from golem_core.schedule.records import KEPT
from golem_server.errors import JSON, encode
from golem_server.residency import Resident
from golem_server.service import Service
from golem_server.version import VERSION


class About:
    """``GET /golem``."""

    def __init__(self, service: Service):
        self.service = service

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.content_type = JSON
        resp.data = encode(self.about())

    def about(self) -> dict[str, Any]:
        """The model in memory, its file, and what has been answered."""
        service = self.service
        totals = service.records.totals
        models = [self._model(resident) for resident in service.residency.residents()]
        return {
            "version": VERSION,
            "model": models[0] if models else None,
            "models": models,
            "kept": KEPT,
            **totals._asdict(),
        }

    def _model(self, resident: Resident) -> dict[str, Any]:
        entry, left = resident.entry, resident.expires_in
        engine = self.service.residency.engine(entry.name)
        pin = entry.manifest and entry.manifest.pins.get(entry.name)
        verified = resident.verified_at
        expires = None if math.isinf(left) else datetime.now(UTC) + timedelta(seconds=left)
        return {
            "name": entry.name,
            "file": str(entry.path),
            "pin": pin.sha256 if pin else "unpinned",
            "verified_at": _time(verified),
            "verified_ms": None if verified is None else 1e3 * resident.verify_seconds,
            "loaded_at": _time(resident.loaded_at),
            "load_ms": 1e3 * resident.load_seconds,
            "context": engine.context if engine else None,
            "slots": len(engine.slots) if engine else 0,
            "expires_at": _time(expires),
        }


class LastAnswers:
    """``GET /golem/records``."""

    def __init__(self, service: Service):
        self.service = service

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        totals, last = self.service.records.totals, self.service.records.last
        measured = [r for r in last if r.energy_j is not None]
        drawn = sum(r.completion_tokens for r in measured)
        joules = sum(r.energy_j for r in measured)
        resp.content_type = JSON
        resp.data = encode(
            {
                "kept": len(last),
                "keep": KEPT,
                "prompt_tokens": totals.prompt_tokens,
                "completion_tokens": totals.completion_tokens,
                "energy_j": totals.energy_j,
                "joules_per_token": joules / drawn if drawn else None,
                "records": [record._asdict() for record in last],
            }
        )


def _time(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
