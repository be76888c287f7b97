"""Durations in Go's notation."""

import pytest

from golem_core.schedule.durations import go_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.139, "139ms"),
        (51.31, "51.31s"),
        (62.3, "1m2.3s"),
        (3600, "1h0m0s"),
        (829.813e-6, "829.813µs"),
        (5e-9, "5ns"),
        (0.9999999999, "1s"),
        (0.0015, "1.5ms"),
        (-0.25, "-250ms"),
    ],
)
def test_durations_read_as_go_writes_them(seconds, text):
    assert go_duration(seconds) == text


def test_rounding_leaves_whole_units():
    assert go_duration(0.00715, 0.001) == "7ms"
    assert go_duration(0.0004, 0.001) == "0s"
