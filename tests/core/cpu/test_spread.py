"""Rows that lie a power of two apart are moved apart, but not where something counts on them."""

from dataclasses import replace

import pytest

from golem_core.cpu.records import Buffer, FinishCode, Operand, Record, SegmentCode
from golem_core.cpu.spread import EVERY, GAP, spread_rows
from golem_core.graph.values import Dim

N = Dim((("n", 1),), 0)
WIDTH = EVERY // 4


def records(buffer: Buffer, kind: str = "rms_norm", **changes):
    """A product that stores into the buffer and adds it, and a kernel that reads it."""
    whole = Operand(buffer, 0, buffer.row_bytes // 4, buffer.row_bytes // 4)
    reads = replace(whole, **changes)
    segment = SegmentCode(None, None, None, [FinishCode("add", operand=whole)], whole)
    product = Record("linear", "x", N, 1, WIDTH, segments=[segment], whole=True)
    return [product, Record(kind, "y", N, 1, WIDTH, [reads], [])]


def strides(made: list[Record]) -> set[int]:
    product, reader = made
    segment = product.segments[0]
    return {segment.store.row, segment.finishes[0].operand.row, reader.ins[0].row}


def test_every_operand_of_such_rows_gets_the_new_stride():
    buffer = Buffer("x", N, EVERY)
    made = records(buffer)
    spread_rows(made)
    assert strides(made) == {WIDTH + GAP}
    assert buffer.row_bytes == (WIDTH + GAP) * 4


def test_a_part_of_a_row_stays_where_it_is_in_it():
    made = records(Buffer("x", N, EVERY), offset=64, span=16)
    spread_rows(made)
    operand = made[1].ins[0]
    assert (operand.offset, operand.span, operand.row) == (64, 16, WIDTH + GAP)


@pytest.mark.parametrize(
    ("buffer", "kind", "changes"),
    [
        (Buffer("other width", N, EVERY + 64), "rms_norm", {}),
        (Buffer("an output", N, EVERY, pinned=True), "rms_norm", {}),
        (Buffer("a worker's own", N, EVERY, replica=2 * EVERY), "rms_norm", {}),
        (Buffer("bytes behind", N, EVERY, spare=64), "rms_norm", {}),
        (Buffer("copied by strides of its own", N, EVERY), "copy", {}),
        (Buffer("seen as half rows", N, EVERY), "rms_norm", {"row": WIDTH // 2}),
        (Buffer("seen from a later row", N, EVERY), "rms_norm", {"offset": EVERY}),
        (Buffer("behind other rows", N, EVERY), "rms_norm", {"before": N}),
    ],
    ids=lambda x: x.name if isinstance(x, Buffer) else None,
)
def test_other_buffers_stay_as_they_are(buffer, kind, changes):
    made = records(buffer, kind, **changes)
    before, bytes_ = strides(made), buffer.row_bytes
    spread_rows(made)
    assert strides(made) == before and buffer.row_bytes == bytes_


def test_what_a_pass_brings_along_stays_as_it_lies():
    buffer = Buffer("x", N, EVERY)
    made = records(buffer)
    spread_rows(made, [buffer])
    assert strides(made) == {WIDTH} and buffer.row_bytes == EVERY
