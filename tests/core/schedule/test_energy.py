"""The processor's energy counters, in a folder like the system's."""

import pytest

from golem_core.schedule.energy import Energy

RANGE = 262143328850


def zone(folder, name, label, energy, span=RANGE):
    path = folder / name
    path.mkdir()
    (path / "name").write_text(f"{label}\n")
    (path / "energy_uj").write_text(f"{energy}\n")
    (path / "max_energy_range_uj").write_text(f"{span}\n")
    return path / "energy_uj"


def test_joules_are_the_difference_of_the_counter(tmp_path):
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    energy = Energy(tmp_path)
    start = energy.read()
    counter.write_text("7500000\n")
    assert energy.since(start) == 2.5


def test_a_counter_that_started_again_is_followed_past_its_range(tmp_path):
    counter = zone(tmp_path, "intel-rapl:0", "package-0", RANGE - 1_000_000)
    energy = Energy(tmp_path)
    start = energy.read()
    counter.write_text("1999999\n")
    assert energy.since(start) == 3.0


def test_packages_are_summed_and_their_parts_are_not(tmp_path):
    counters = [zone(tmp_path, f"intel-rapl:{i}", f"package-{i}", 0) for i in range(2)]
    inner = zone(tmp_path, "intel-rapl:0:0", "core", 0)
    whole = zone(tmp_path, "intel-rapl:2", "psys", 0)
    energy = Energy(tmp_path)
    start = energy.read()
    for path in (*counters, inner, whole):
        path.write_text("1000000\n")
    assert energy.since(start) == 2.0


@pytest.mark.parametrize("what", ["no folder", "no number", "gone meanwhile"])
def test_what_cannot_be_read_is_not_measured(tmp_path, what):
    if what == "no folder":
        assert Energy(tmp_path / "none").read() is None
        assert Energy(tmp_path / "none").since(None) is None
        return
    counter = zone(tmp_path, "intel-rapl:0", "package-0", "" if what == "no number" else 1)
    energy = Energy(tmp_path)
    start = energy.read()
    if what == "gone meanwhile":
        assert start is not None
        counter.unlink()
    assert energy.since(start) is None
