"""Handing a request's prompts to the engine, the same way in every dialect."""

from collections.abc import Mapping, Sequence
from typing import Any

import falcon

from golem_core.sample import SamplerParams
from golem_core.schedule import Engine, Job, Request
from golem_server.access_log import NOTE
from golem_server.answer import Answer
from golem_server.disconnect import client_gone
from golem_server.schema import Drawing, whole


def submit(
    req: falcon.Request,
    engine: Engine,
    request: Drawing,
    body: Mapping[str, Any],
    prompts: Sequence[Sequence[int]],
) -> Answer:
    """One job for each prompt, all or none.

    Raises:
        ParamError, ContextExceeded, QueueFull, EngineClosed: nothing is left running.
    """
    model = engine.model
    params = SamplerParams.resolve(model.sampling, body, tokenizer=model.tokenizer)
    slot = request.id_slot
    slot = -1 if slot is None else whole("id_slot", slot, -1, len(engine.slots) - 1)
    jobs: list[Job] = req.env[NOTE].jobs
    try:
        for tokens in prompts:
            jobs.append(
                engine.submit(
                    Request(
                        tokens=tokens,
                        max_tokens=request.length,
                        params=params,
                        stop=request.stops,
                        cache_prompt=request.cache_prompt is not False,
                        id_slot=slot,
                    )
                )
            )
    except BaseException:
        for job in jobs:
            job.cancel()
        raise
    return Answer(jobs, client_gone(req.env))
