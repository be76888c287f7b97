"""What golem-bench prints: a table, the same as markdown, or JSON with llama-bench's fields."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from golem_core.model import Model
from golem_server.bench.measure import Result

FORMATS = ("table", "md", "json")
STEADY = 0.15  # plain reads that vary by more make their share a guess: "?"


def model_type(model: Model) -> str:
    """ "qwen3 4B Q4_0"."""
    size = model.file.metadata.get("general.size_label", "")
    return " ".join(part for part in (model.architecture, str(size), model.file_type) if part)


def record(model: Model, threads: int, result: Result) -> dict[str, Any]:
    """One test as llama-bench's JSON has it, and what golem adds to it."""
    nanoseconds = [round(s * 1e9) for s in result.seconds]
    case = result.case
    return {
        "build_number": _version(),
        "cpu_info": cpu_name(),
        "backends": "CPU",
        "model_filename": str(model.path),
        "model_type": model_type(model),
        "model_size": model.size_bytes,
        "model_n_params": model.n_params,
        "n_batch": model.pass_width,
        "n_ubatch": model.pass_width,
        "n_threads": threads,
        "type_k": "f16",
        "type_v": "f16",
        "n_prompt": case.n_prompt,
        "n_gen": case.n_gen,
        "n_depth": case.depth,
        "n_conversations": case.batch,
        "test": case.name,
        "test_time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "avg_ns": round(fmean(nanoseconds)),
        "stddev_ns": round(stdev(nanoseconds)) if len(nanoseconds) > 1 else 0,
        "avg_ts": result.rate,
        "stddev_ts": result.spread,
        "samples_ns": nanoseconds,
        "samples_ts": result.rates,
        "load_ns": round(model.seconds * 1e9),
        "read_share": result.read_share,
        "read_spread": result.read_spread,
        "outside_us": result.outside,
        "served_outside_us": result.served,
        "pass_weight_bytes": result.pass_bytes,
        "profile": result.profile,
    }


def _version() -> str:
    try:
        return metadata.version("golem-server")
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        return "checkout"


def cpu_name() -> str:
    """The processor as the system calls it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


COLUMNS = (
    "model", "size", "params", "threads", "test", "t/s",
    "a pass", "read", "pass - C", "served - C", "load",
)  # fmt: skip
MEANING = """\
a pass      weights that a pass reads
read        rate of reading them over that of a plain read of memory; "?" where plain reads varied,
            or where it is more than they gave, as caches hold a part
pass - C    a drawn token's part of a pass, less what is spent inside C
served - C  a drawn token's part of the time from one pass to the next, less what the pass spends
            inside C, in the engine golem-server draws with: passes put together, ops dispatched,
            sampling (the default chain), text, ends, handing out; nobody drafts; without HTTP
"""


def row(entry: dict[str, Any]) -> tuple[str, ...]:
    """A record as a line of the table."""
    share = entry["read_share"]
    return (
        entry["model_type"],
        f"{entry['model_size'] / 2**30:.2f} GiB",
        _count(entry["model_n_params"]),
        str(entry["n_threads"]),
        entry["test"],
        f"{entry['avg_ts']:.2f} ± {entry['stddev_ts']:.2f}",
        "" if entry["pass_weight_bytes"] is None else f"{entry['pass_weight_bytes'] / 1e6:.0f} MB",
        "" if share is None else f"{100 * share:.0f} %" + "?" * _doubtful(entry),
        *(_microseconds(entry[key]) for key in ("outside_us", "served_outside_us")),
        f"{entry['load_ns'] / 1e9:.2f} s",
    )


def _microseconds(us: float | None) -> str:
    return "" if us is None else f"{us:.0f} µs"


def _doubtful(entry: dict[str, Any]) -> bool:
    """Whether a share of a plain read says little: those varied, or caches beat them."""
    return entry["read_spread"] > STEADY or entry["read_share"] > 1


def _count(n: int) -> str:
    return f"{n / 1e9:.2f} B" if n >= 1e9 else f"{n / 1e6:.2f} M"


def render(entries: Sequence[dict[str, Any]], form: str) -> str:
    """All records in one of FORMATS."""
    if form == "json":
        return json.dumps(list(entries), indent=2, ensure_ascii=False)
    rows = [COLUMNS, *map(row, entries)]
    widths = [max(len(line[i]) for line in rows) for i in range(len(COLUMNS))]
    texts = [
        [
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        for line in rows
    ]
    if form == "md":
        rule = ["-" * w if i == 0 else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
        return "\n".join("| " + " | ".join(line) + " |" for line in [texts[0], rule, *texts[1:]])
    return "\n".join("  ".join(line).rstrip() for line in texts)
