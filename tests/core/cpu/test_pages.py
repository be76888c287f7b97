"""Memory of weights: huge pages at once or later, the same bytes at any time."""

import re
from pathlib import Path

import numpy as np
import pytest

from golem_core.cpu import CpuExecutor, _executor, pages, weights
from golem_core.cpu.pages import Pages, huge_page
from tests.core.cpu.decoders import decoder, one_pass

needs_huge_pages = pytest.mark.skipif(not huge_page(), reason="this system has no huge pages")


@pytest.fixture
def pool():
    made = _executor.Pool(2, 0, np.zeros(64, np.int32))
    yield made
    made.close()


@pytest.fixture
def slow(monkeypatch):
    """Any huge page counts as slow."""
    monkeypatch.setattr(pages, "SLOW", 0.0)


def view(memory: Pages) -> np.ndarray:
    return np.frombuffer(memory._map, np.uint8)[memory._skip : memory._skip + memory.size]


def huge_bytes(address: int) -> int:
    """Bytes in huge pages of the mappings from an address on that lie side by side."""
    found, end = 0, address
    for text in re.split(r"\n(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text()):
        first, last = (int(x, 16) for x in text.split(maxsplit=1)[0].split("-"))
        if first <= end < last:
            found += int(re.search(r"AnonHugePages:\s+(\d+)", text)[1]) << 10
            end = last
    return found


def settled(thing) -> int:
    """Calls until nothing is left."""
    calls = 1
    while thing.settle():
        calls += 1
        assert calls < 1000
    return calls


def test_memory_is_zero_aligned_and_as_large_as_asked(pool):
    memory = Pages(3 * (huge_page() or 4096) + 5)
    assert memory.address == view(memory).ctypes.data
    assert memory.address % (huge_page() or 4096) == 0
    memory.touch(memory.size, pool)
    assert not view(memory).any()


@needs_huge_pages
def test_what_came_slowly_is_settled_page_by_page_and_keeps_its_bytes(pool, slow):
    memory = Pages(4 * huge_page() + 100)
    written = np.random.default_rng(0).integers(0, 256, memory.size, np.uint8)
    memory.touch(huge_page(), pool)
    memory.touch(memory.size, pool)
    view(memory)[:] = written
    before = huge_bytes(memory.address)
    assert before <= huge_page()  # the first one was tried
    memory.touched()
    can = _executor.collapse(memory.address + huge_page(), huge_page())
    calls = settled(memory)
    np.testing.assert_array_equal(view(memory), written)
    if can:
        assert calls == 3
        assert huge_bytes(memory.address) >= 3 * huge_page()
    assert settled(memory) == 1


@needs_huge_pages
def test_what_came_quickly_is_settled_from_the_start(pool, monkeypatch):
    monkeypatch.setattr(pages, "SLOW", 1.0)
    memory = Pages(3 * huge_page())
    for i in range(1, 4):
        memory.touch(i * huge_page(), pool)
    memory.touched()
    assert settled(memory) == 1


def test_a_page_that_cannot_be_made_ends_the_settling(pool, slow, monkeypatch):
    memory = Pages(4 * (huge_page() or 4096))
    memory.touch(huge_page() or 4096, pool)
    memory.touched()
    monkeypatch.setattr(_executor, "collapse", lambda address, size: False)
    assert settled(memory) == 1


def test_passes_have_the_same_bits_before_and_after(slow, monkeypatch):
    monkeypatch.setattr(weights, "BATCH", 1 << 20)
    program = decoder("Q8_0", width=512, hidden=4096)
    with CpuExecutor(program, slots=1, context=64, threads=2) as ex:
        before = ex.run(one_pass((0, 9, 0, 1)))["logits"].copy()
        assert settled(ex) >= (ex.weights.nbytes > 3 * (huge_page() or 1 << 40))
        np.testing.assert_array_equal(ex.run(one_pass((0, 9, 0, 1)))["logits"], before)
    assert not ex.settle()
