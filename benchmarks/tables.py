"""What benchmarks/compare.py keeps of its turns, in a file that runs add to, and its tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.lines import LINES, Line

GOLEM = "golem"
Turns = list[dict]  # {"steady": bool, "values": [...]}, one a turn; no values where it failed


@dataclass
class Samples:
    """Turns by model (its file's name), line and program, kept in a JSON file where one is named.

    ``programs`` says of each program what it is; a file whose golem is another build is refused.
    """

    programs: dict[str, str]
    path: Path | None = None
    models: dict[str, dict[str, dict[str, Turns]]] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path | None, programs: dict[str, str]) -> Samples:
        """Goes on with the file if there is one; ``programs`` are added to those it names.

        Raises ValueError when it holds figures of the same program in another build, or none.
        """
        if path is None or not path.exists():
            return cls(dict(programs), path)
        try:
            kept = json.loads(path.read_text())
            builds, models = dict(kept["programs"]), dict(kept["models"])
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"{path} holds no samples of a comparison: name another file"
            ) from None
        for name, build in programs.items():
            if builds.get(name, build) != build:
                raise ValueError(
                    f"{path} holds figures of {name} {builds[name]}, and this is {build}:"
                    " name another file"
                )
        return cls(builds | programs, path, models)

    def add(self, model: str, line: str, program: str, steady: bool, values: list[float]) -> None:
        turns = self.models.setdefault(model, {}).setdefault(line, {}).setdefault(program, [])
        turns.append({"steady": steady, "values": values})

    def save(self) -> None:
        """Writes the file, whole or not at all."""
        if self.path is not None:
            part = self.path.with_name(self.path.name + ".part")
            part.write_text(json.dumps({"programs": self.programs, "models": self.models}) + "\n")
            part.rename(self.path)

    def turns(self, model: str, line: str, program: str) -> Turns:
        return self.models.get(model, {}).get(line, {}).get(program, [])

    def taken(self, model: str, line: str, programs: Sequence[str]) -> int:
        """Turns that every one of the programs has had, disturbed ones left out."""
        return min(sum(t["steady"] for t in self.turns(model, line, p)) for p in programs)

    def medians(self, model: str, line: str) -> tuple[dict[str, float], bool]:
        """By program, of what nobody disturbed; of everything, and True, where that is nothing."""
        by_program = self.models.get(model, {}).get(line, {})
        steady = {p: _values(turns, True) for p, turns in by_program.items()}
        every = {p: _values(turns, False) for p, turns in by_program.items()}
        doubtful = any(every[p] and not steady[p] for p in every)
        chosen = every if doubtful else steady
        return {p: median(values) for p, values in chosen.items() if values}, doubtful


def _values(turns: Turns, steady: bool) -> list[float]:
    return [value for turn in turns if turn["steady"] or not steady for value in turn["values"]]


def ratio(line: Line, medians: dict[str, float]) -> float | None:
    """How many times better golem's median is than the best peer's."""
    peers = [value for program, value in medians.items() if program != GOLEM]
    if GOLEM not in medians or not peers or line.better == 0:
        return None
    mine = medians[GOLEM]
    return mine / max(peers) if line.better > 0 else min(peers) / mine


def _ratio_text(line: Line, medians: dict[str, float], doubtful: bool) -> str:
    found = ratio(line, medians)
    return "" if found is None else f"{found:.2f}{'?' * doubtful}"


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _known(samples: Samples, models: Sequence[str]) -> Iterator[Line]:
    """Lines of which anything was measured."""
    yield from (line for line in LINES if any(samples.medians(m, line.name)[0] for m in models))


def table(samples: Samples, model: str) -> str:
    """A model's medians in Markdown; behind a ratio, ``?`` where others disturbed every round."""
    programs = [p for p in samples.programs if any(p in t for t in samples.models[model].values())]
    rows = [["line", "unit", *programs, "ratio"]]
    for line in _known(samples, [model]):
        medians, doubtful = samples.medians(model, line.name)
        cells = [_number(medians[p]) if p in medians else "" for p in programs]
        rows.append([line.name, line.unit, *cells, _ratio_text(line, medians, doubtful)])
    return _markdown(rows)


def summary(samples: Samples) -> str:
    """The ratios of all models, a column each."""
    models = list(samples.models)
    rows = [["golem / the better peer", *(Path(model).stem for model in models)]]
    for line in _known(samples, models):
        if line.better:
            found = (samples.medians(model, line.name) for model in models)
            rows.append([line.name, *(_ratio_text(line, *medians) for medians in found)])
    return _markdown(rows)


def _markdown(rows: list[list[str]]) -> str:
    first, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([first, "|---" * len(rows[0]) + "|", *others])
