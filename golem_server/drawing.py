"""Handing a request's prompts to the engine, the same way in every dialect."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import falcon

from golem_core.sample import RANDOM_SEED, SamplerParams
from golem_core.schedule import Engine, Request
from golem_server.access_log import NOTE
from golem_server.answer import Answer
from golem_server.disconnect import client_gone
from golem_server.errors import Refusal
from golem_server.llama_settings import PLAIN, asked_of
from golem_server.prompts import too_many
from golem_server.schema import Drawing, Limits, whole

MOST_COMPETITORS = 1 << 20  # told in one request: each takes a hundred bytes until it has left


class Ways(NamedTuple):
    """How answers are drawn. slot: the one that is asked for, -1 = any."""

    params: SamplerParams
    slot: int
    limits: Limits
    stops: list[str]


def submit(
    req: falcon.Request,
    engine: Engine,
    request: Drawing,
    body: Mapping[str, Any],
    prompts: Sequence[Sequence[int]],
    *,
    chat_format: str = PLAIN,
    **options: Any,
) -> Answer:
    """One job for each answer to each prompt, all or none; those to one prompt in a row.

    chat_format: as llama-server calls it. options: further fields of golem_core's Request.

    Raises:
        Refusal, ParamError, ContextExceeded, QueueFull, EngineClosed: nothing is left running.
    """
    count = request.answers
    scored = sum(map(len, prompts)) if options.get("scores_prompt") else 0
    told = options.get("n_probs", 0)
    ways = check(engine, request, body, told, prompts=len(prompts), scored=scored)
    asked = asked_of(request, ways.limits, chat_format)
    jobs = engine.submit_all(
        [
            Request(
                tokens=tokens,
                max_tokens=request.length,
                params=_seeded(ways.params, place),
                stop=ways.stops,
                cache_prompt=request.cache_prompt is not False,
                id_slot=ways.slot,
                post_sampling_probs=bool(request.post_sampling_probs),
                indent=ways.limits.n_indent,
                limit_ms=ways.limits.t_max_predict_ms,
                reports=bool(request.stream and request.return_progress),
                note=asked,
                **options,
            )
            for tokens in prompts
            for place in range(count)
        ]
    )
    req.env[NOTE].jobs += jobs
    return Answer(jobs, client_gone(req.env), count)


def check(
    engine: Engine,
    request: Drawing,
    body: Mapping[str, Any],
    told: int = 0,
    *,
    prompts: int = 1,
    scored: int = 0,
) -> Ways:
    """How the answers of a request are drawn.

    It says what is wrong with that whatever the prompts are, and costs next to nothing: to be asked
    before pictures are looked at. told: competitors of each token. scored: tokens of prompts that
    are told of.

    Raises:
        Refusal, ParamError.
    """
    model = engine.model
    count = request.answers
    slots = len(engine.slots)
    if count > slots:
        answers = "one answer" if slots == 1 else f"at most {slots} answers"
        raise Refusal(
            f"n is {count}: this server draws {answers}; start it with a larger -parallel for more"
        )
    most = slots + engine.queue
    if count * prompts > most:
        raise too_many(count * prompts, most)
    _check_competitors(engine, request, count, prompts, scored, told)
    params = SamplerParams.resolve(model.sampling, body, tokenizer=model.tokenizer)
    slot = request.id_slot
    slot = -1 if slot is None else whole("id_slot", slot, -1, slots - 1)
    return Ways(params, slot, request.limits, request.stops)


def _check_competitors(
    engine: Engine, request: Drawing, count: int, prompts: int, scored: int, told: int
) -> None:
    """Refuse probabilities that would fill the memory.

    count: answers to each prompt. scored: tokens of prompts that are told of. told: competitors of
    each token.
    """
    length = engine.default_length if request.length is None else request.length
    tokens = engine.context if length < 0 else min(max(1, length), engine.context)
    told = min(told, engine.model.n_vocab)
    tokens = (tokens * prompts + scored) * count
    if told * tokens > MOST_COMPETITORS:
        raise Refusal(
            f"{told} competitors of each of {tokens} tokens are asked for, and one "
            f"request is told {MOST_COMPETITORS} in all: lower top_logprobs (n_probs, logprobs) "
            "or max_tokens"
        )


def _seeded(params: SamplerParams, place: int) -> SamplerParams:
    """The settings of an answer: those after the first have seeds of their own."""
    if not place or params.seed == RANDOM_SEED:
        return params
    return replace(params, seed=(params.seed + place) % RANDOM_SEED)
