"""llama-server's native ``/completion``, and ``/infill`` for models that fill gaps."""

from collections.abc import Mapping, Sequence
from typing import Any

import falcon

from golem_core.sample import SamplerParams
from golem_core.schedule import Engine, Job, Request, Result, Step
from golem_server import sse
from golem_server.access_log import NOTE
from golem_server.answer import Answer
from golem_server.body import read_object
from golem_server.drawing import submit
from golem_server.errors import JSON, Refusal, encode
from golem_server.infill import gap_prompt
from golem_server.llama_native import Native, chosen
from golem_server.llama_settings import PLAIN, asked_of
from golem_server.logprobs import Entries
from golem_server.progress import Reports, so_far
from golem_server.prompts import encode_prompt, read_prompts
from golem_server.schema import NativeRequest, read_request
from golem_server.service import Service


class _Writer:
    """The events of a streamed native answer."""

    def __init__(self, native: Native, jobs: Sequence[Job], request: NativeRequest, model: str):
        tokenizer, after = native.tokenizer, bool(request.post_sampling_probs)
        self._native = native
        self._jobs = jobs
        self._model = model
        self._fields = request.response_fields or ()
        self._timed = bool(request.timings_per_token)
        self._entries = [Entries(tokenizer, after) for _ in jobs]
        self._held = [""] * len(jobs)  # text of tokens that left a character unfinished
        self._reports = Reports(jobs, self._timed)

    def _part(
        self, index: int, text: str, tokens: list[int], count: int, more: dict[str, Any]
    ) -> bytes:
        return sse.frame(
            {
                "index": index,
                "content": text,
                "tokens": tokens,
                "stop": False,
                "id_slot": -1,
                "tokens_predicted": count,
                "tokens_evaluated": len(self._jobs[index].request.tokens),
                **more,
            }
        )

    def opening(self) -> bytes:
        return b"".join(self._part(index, "", [], 0, more) for index, more in self._reports.fresh())

    def steps(self, index: int, steps: list[Step]) -> bytes:
        return self.opening() + b"".join([self._step(index, step) for step in steps])

    def _step(self, index: int, step: Step) -> bytes:
        entries = self._entries[index]
        entries.take(step)
        self._held[index] += step.text
        if not step.whole and not step.end:
            return b""
        text, self._held[index] = self._held[index], ""
        job = self._jobs[index]
        at_stop_text = step.end and job.result is not None and job.result.stop_type == "word"
        more: dict[str, Any] = {}
        if self._timed or at_stop_text:
            more["timings"] = so_far(job, step)
        if probabilities := entries.release():
            more["completion_probabilities"] = probabilities
        return self._part(index, text, [step.token], step.count, more)

    def ending(self, index: int, result: Result) -> bytes:
        request = self._jobs[index].request
        last = self._native.ended(index, request, result, self._model, streamed=True)
        return self.opening() + sse.frame(chosen(last, self._fields) if self._fields else last)

    def closing(self, results: list[Result]) -> bytes:
        return b""


class Completion:
    """``POST /completion``, ``/completions``."""

    def __init__(self, service: Service, max_body: int):
        self.service = service
        self.max_body = max_body

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        body = read_object(req, self.max_body)
        request = read_request(NativeRequest, body)
        engine = self.service.acquire(req, request.model, request.stays)
        native = Native(engine.model.tokenizer, self.service)
        with engine.entering():
            prompts = self._prompts(engine, request)
            req.env[NOTE].prompts += [native.text(tokens) for tokens in prompts]
            if not any(prompts):
                self._nothing(resp, native, request, body, engine.model.sampling)
                return
            answer = submit(req, engine, request, body, prompts, n_probs=request.top)
        self._answer(req, resp, native, request, answer)

    def _prompts(self, engine: Engine, request: NativeRequest) -> list[list[int]]:
        tokenizer = engine.model.tokenizer
        given = read_prompts(request.prompt, self.service.server.most_answers)
        return [encode_prompt(tokenizer, elements, engine.context) for elements in given]

    def _answer(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        native: Native,
        request: NativeRequest,
        answer: Answer,
    ) -> None:
        model = request.model or self.service.name
        if request.stream:
            note = req.env[NOTE]

            def failed(refusal: Refusal) -> None:
                note.refusal = refusal.logged

            writer = _Writer(native, answer.jobs, request, model)
            sse.respond(resp, answer, writer, failed, done=b"", ping=request.ping)
            return
        answer.results()
        told = []
        for index, job in enumerate(answer.jobs):
            entries = Entries(native.tokenizer, bool(request.post_sampling_probs))
            for step in job:
                entries.take(step)
            entries.end(job.result)
            probabilities = entries.release()
            told.append(native.ended(index, job.request, job.result, model, entries=probabilities))
        self._send(resp, request, told)

    def _send(
        self, resp: falcon.Response, request: NativeRequest, told: list[dict[str, Any]]
    ) -> None:
        if request.response_fields:
            told = [chosen(one, request.response_fields) for one in told]
        resp.content_type = JSON
        resp.data = encode(told if len(told) > 1 else told[0])

    def _nothing(
        self,
        resp: falcon.Response,
        native: Native,
        request: NativeRequest,
        body: Mapping[str, Any],
        sampling: Mapping[str, Any],
    ) -> None:
        """The answer to a prompt without a token, which is none."""
        params = SamplerParams.resolve(sampling, body, tokenizer=native.tokenizer)
        asked = Request(
            [],
            max_tokens=request.length,
            params=params,
            stop=request.stops,
            n_probs=request.top,
            post_sampling_probs=bool(request.post_sampling_probs),
            note=asked_of(request, request.limits, PLAIN),
        )
        told = native.ended(0, asked, _EMPTY, request.model or self.service.name)
        if request.stream:
            resp.content_type = "text/event-stream"
            resp.data = sse.frame(told)
        else:
            self._send(resp, request, [told])


_EMPTY = Result(
    text="",
    tokens=(),
    prompt_tokens=0,
    cached_tokens=0,
    fed_tokens=0,
    finish_reason="stop",
    stop_type="none",
    stopping_word="",
    truncated=False,
    slot=-1,
    slot_tokens=0,
    seed=0,
    queue_ms=0.0,
    prompt_ms=0.0,
    draw_ms=0.0,
    first_ms=None,
)


class Infill(Completion):
    """``POST /infill``."""

    def _prompts(self, engine: Engine, request: NativeRequest) -> list[list[int]]:
        return [gap_prompt(engine, request)]
