"""What the 27B's benchmark measures: a part in proportion, and ratios to the better peer."""

from collections import defaultdict

import pytest

from benchmarks.deltanet import against_peers, among_themselves, part_of, share_of
from golem_server.bench.invented import tensors
from golem_server.bench.shapes import SHAPES


def size_of(shape, part: str) -> int:
    return sum(
        size[0] * size[-1]
        for name, size, *_ in tensors(shape, "Q4_0", 0)
        if name.startswith(part) and len(size) > 1
    )


def test_a_part_of_a_shape_weighs_in_proportion():
    whole, part = SHAPES["qwen35-27b"], part_of(SHAPES["qwen35-27b"], 8)
    assert part.blocks == 8
    for name in ("blk.", "output.", "token_embd."):
        assert size_of(part, name) * 8 == size_of(whole, name)


def test_ratios_are_to_the_better_peer_and_gaps_stay_gaps():
    samples = defaultdict(list)
    for program, rate in (("golem", 30.0), ("a", 10.0), ("b", 15.0)):
        samples["q4_k_m", "prompt", program] = [rate]
    samples["q4_k_m", "drawing", "golem"] = [7.0]
    rows = against_peers(samples, ["q4_k_m"], ["golem", "a", "b"], {"q4_k_m": [(0.8, 0.3)]})
    prompt, drawing = (row.split(" | ") for row in rows.splitlines()[2:])
    assert prompt[2:6] == ["30.00", "10.00", "15.00", "2.00"]
    assert drawing[2:6] == ["7.00", "-", "-", "-"]
    assert drawing[-1] == "80 %? |"


def test_types_are_compared_with_golems_own():
    samples = defaultdict(list)
    for kind, rate in (("tq2_0", 20.0), ("pq2_0", 19.0)):
        samples[kind, "prompt", "golem"] = samples[kind, "drawing", "golem"] = [rate]
    rows = among_themselves(samples, ["pq2_0"], "golem", {"pq2_0": []}).splitlines()
    assert [row.split(" | ")[4] for row in rows[2:]] == ["0.95", "0.95"]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([], ""),
        ([(0.9, 0.1), (0.99, 0.2)], "90 %"),
        ([(0.7, 0.2), (0.8, 0.4)], "80 %?"),
        ([(0.9, 0.1), (1.11, 0.1)], "111 %?"),  # more than a plain read gave
    ],
)
def test_a_share_counts_where_plain_reads_were_steady(found, text):
    assert share_of(found) == text
