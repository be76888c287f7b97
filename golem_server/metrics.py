"""``GET /metrics``: llama-server's figures under their names, and golem's own beside them.

The figures are the engine's counters, read when somebody asks; nothing is counted twice.
"""

import threading
import time
from collections.abc import Iterable, Iterator

import falcon
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from golem_core.schedule import Engine, Stats
from golem_server.service import Service
from golem_server.version import VERSION

CONTENT_TYPE = "text/plain; version=0.0.4"


class Metrics:
    """The resource. Averages are over the time since it was last asked."""

    def __init__(self, service: Service):
        self.service = service
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(service))
        self._started = str(int(time.time()))

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.content_type = CONTENT_TYPE
        resp.set_header("Process-Start-Time-Unix", self._started)
        resp.data = generate_latest(self._registry)


class _Collector:
    def __init__(self, service: Service):
        self._service = service
        self._lock = threading.Lock()
        self._before = Stats()

    def collect(self) -> Iterator[Metric]:
        engine = self._service.resident()
        stats = self._service.stats
        with self._lock:
            before, self._before = self._before, Stats(**vars(stats))
        yield from _llama(stats, before)
        yield from _golem(self._service, engine, stats)


def _llama(stats: Stats, before: Stats) -> Iterator[Metric]:
    """llama-server's figures, under its names."""

    def rate(count: str, seconds: str) -> float:
        spent = getattr(stats, seconds) - getattr(before, seconds)
        done = getattr(stats, count) - getattr(before, count)
        return done / spent if spent > 0 and done > 0 else 0.0

    yield from _counters(
        "llamacpp:",
        ("prompt_tokens", "Prompt tokens that were read.", stats.prompt_columns),
        ("prompt_tokens_cached", "Prompt tokens that a slot still held.", stats.cached),
        ("prompt_seconds", "Seconds spent reading prompts.", stats.prompt_seconds),
        ("tokens_predicted", "Tokens drawn.", stats.drawn),
        ("tokens_predicted_seconds", "Seconds spent drawing.", stats.draw_seconds),
        ("n_decode", "Passes through the model.", stats.passes),
        ("spec_decode_num_drafts", "Times that tokens were guessed ahead.", stats.drafts),
        ("spec_decode_num_draft_tokens", "Tokens guessed ahead.", stats.drafted),
        ("spec_decode_num_accepted_tokens", "Of those, tokens drawn then.", stats.accepted),
    )
    yield from _gauges(
        "llamacpp:",
        ("n_tokens_max", "Most tokens a slot has held.", stats.longest),
        (
            "prompt_tokens_seconds",
            "Prompt tokens a second, since the last scrape.",
            rate("prompt_columns", "prompt_seconds"),
        ),
        (
            "predicted_tokens_seconds",
            "Tokens drawn a second, since the last scrape.",
            rate("drawn", "draw_seconds"),
        ),
        ("requests_processing", "Requests that hold a slot.", stats.running),
        ("requests_deferred", "Requests that wait for a slot.", stats.waiting),
        (
            "n_busy_slots_per_decode",
            "Slots in use, the average over passes.",
            stats.busy_slots / stats.passes if stats.passes else 0.0,
        ),
    )


def _golem(service: Service, engine: Engine | None, stats: Stats) -> Iterator[Metric]:
    """What only golem counts."""
    yield from _counters(
        "golem_",
        ("requests", "Answers asked for.", stats.submitted),
        ("requests_finished", "Answers that ended by themselves.", stats.finished),
        ("requests_cancelled", "Answers whose client left.", stats.cancelled),
        ("requests_failed", "Answers that failed.", stats.failed),
        ("requests_refused", "Requests refused because the queue was full.", stats.refused),
        ("logprobs", "Tokens drawn whose probabilities were told.", stats.probs),
        ("prompt_logprobs", "Prompt tokens of which they were.", stats.prompt_probs),
        ("grammar_vocabularies", "Vocabularies read for grammars.", stats.vocabularies),
        ("pass_seconds", "Seconds the model computed.", stats.pass_seconds),
        ("pass_columns", "Tokens that went through the model.", stats.columns),
    )
    yield from _batches(service)
    slots = [] if engine is None else engine.slots
    yield from _gauges(
        "golem_",
        ("slots", "Conversations at once.", service.server.parallel),
        ("slots_busy", "Slots that draw an answer.", sum(s.is_processing for s in slots)),
        ("slot_tokens", "Tokens that slots hold.", sum(s.n_tokens for s in slots)),
        ("model_loaded", "Whether a model is in memory.", int(engine is not None)),
    )
    joules = service.records.totals.energy_j
    if joules is not None:
        yield from _counters(
            "golem_", ("energy_joules", "Used by the machine while answers were drawn.", joules)
        )
    yield from _lasting(service)
    build = GaugeMetricFamily("golem_build", "The version.", labels=["version"])
    build.add_metric([VERSION], 1)
    yield build


def _batches(service: Service) -> Iterator[Metric]:
    """What went through models that keep nothing of what they read, by what they are for."""
    for name, text, field in (
        ("passes", "Passes through the model.", "passes"),
        ("items", "Texts or questions in them.", "items"),
        ("tokens", "Tokens of these.", "size"),
        ("seconds", "Seconds the model computed.", "seconds"),
    ):
        family = CounterMetricFamily(f"golem_batch_{name}", text, labels=["of"])
        for what, stats in service.batches.items():
            family.add_metric([what], getattr(stats, field))
        yield family


def _lasting(service: Service) -> Iterator[Metric]:
    """How long the last answers took."""
    first = [r.ttft_ms / 1e3 for r in service.records.last if r.ttft_ms is not None]
    family = GaugeMetricFamily(
        "golem_first_token_seconds",
        "From a request to its first text: quantiles of the last 256 answers.",
        labels=["quantile"],
    )
    for part in (0.5, 0.9, 0.99) if first else ():
        family.add_metric([f"{part:g}"], sorted(first)[int(part * (len(first) - 1))])
    yield family


def _counters(start: str, *items: tuple[str, str, float]) -> Iterable[Metric]:
    for name, text, value in items:
        yield CounterMetricFamily(start + name, text, value=value)


def _gauges(start: str, *items: tuple[str, str, float]) -> Iterable[Metric]:
    for name, text, value in items:
        yield GaugeMetricFamily(start + name, text, value=value)
