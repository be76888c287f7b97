"""The energy the processor has used, where the system counts it (RAPL's powercap folder).

Each package has a counter of microjoules that starts again at zero past its range. The system
lets only root read it unless an administrator allows more; where it cannot be read nothing is
measured.
"""

from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


class Energy:
    """The counters of every package under ``folder``. Cheap: a few microseconds a reading."""

    def __init__(self, folder: Path = POWERCAP):
        self._counters: list[tuple[Path, int]] = []  # file, range
        for zone in sorted(folder.glob("intel-rapl:*")):
            # Zones within a package ("intel-rapl:0:1") are part of its figure.
            if zone.name.count(":") != 1 or not _text(zone / "name").startswith("package"):
                continue
            span = _text(zone / "max_energy_range_uj")
            if span.isdigit() and _text(zone / "energy_uj").isdigit():
                self._counters.append((zone / "energy_uj", int(span)))

    def read(self) -> tuple[int, ...] | None:
        """The counters now, for ``since``; None where there is nothing to read."""
        texts = [_text(path) for path, _ in self._counters]
        return tuple(map(int, texts)) if texts and all(t.isdigit() for t in texts) else None

    def since(self, start: tuple[int, ...] | None) -> float | None:
        """Joules used since ``start``, by everything the machine did; None when unmeasured.

        A counter that started again is taken to have done so once.
        """
        end = self.read() if start is not None else None
        if end is None:
            return None
        used = 0
        for before, after, (_, span) in zip(start, end, self._counters, strict=True):
            used += after - before + (span + 1 if after < before else 0)
        return used / 1e6


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
