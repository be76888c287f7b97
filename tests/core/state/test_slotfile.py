"""Slots in files: whole, or refused with the reason."""

import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from golem_core.schedule import Engine
from golem_core.state import Matrix, Ring, States, Window
from golem_core.state.slotfile import MAGIC, Fit, SlotFileError, read_slot, write_slot
from golem_core.state.stored import Stored
from tests.core.schedule.fakes import WAIT, FakeModel, ask

ROOT = Path(__file__).parents[3]
DECLARED = [Ring("full", 2, 4, 4), Ring("slide", 1, 4, 4, window=16), Matrix("delta", 2, 3, 5)]
DECLARED += [Window("conv", 3, 4)]


def states(declared=DECLARED, context=100, **options):
    made = States(declared, slots=2, context=context, pass_width=16, **options)
    random = np.random.default_rng(4)
    for ring in made.rings.values():
        ring.k[...] = random.standard_normal(ring.k.shape)
        ring.v[...] = random.standard_normal(ring.v.shape)
    for array in made.recurrent_arrays.values():
        array[...] = random.standard_normal(array.shape)
    return made


def fit(memory, model="abc", vocabulary=50):
    return Fit(model, vocabulary, memory, (64,))


def stored(memory, count=90, at=20):
    random = np.random.default_rng(5)
    owners = (random.integers(-1, 90, 64).astype(np.int32),)
    copy = random.integers(0, 256, memory.recurrent_bytes).astype(np.uint8)
    tokens = random.integers(-9, 50, count).astype(np.int32)  # below 0: rows of a picture
    return Stored(tokens, memory.save(1, count), owners, ((at, copy),), recurrent=True)


def same(a, b):
    assert np.array_equal(a.tokens, b.tokens)
    assert {k: v.tobytes() for k, v in a.states.items()} == {
        k: v.tobytes() for k, v in b.states.items()
    }
    assert all(np.array_equal(x, y) for x, y in zip(a.owners, b.owners, strict=True))
    assert [(p, x.tobytes()) for p, x in a.checkpoints] == [
        (p, x.tobytes()) for p, x in b.checkpoints
    ]
    assert a.recurrent == b.recurrent


def test_what_is_written_is_read_bit_for_bit(tmp_path):
    memory = states()
    kept = stored(memory)
    size = write_slot(tmp_path / "a.bin", kept, fit(memory))
    assert size == (tmp_path / "a.bin").stat().st_size
    back, read = read_slot(tmp_path / "a.bin", fit(memory))
    assert read == size
    same(back, kept)
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (lambda m: fit(m, model="abd"), "the slot was saved for another model"),
        (lambda m: fit(m, vocabulary=20), "Invalid tokens in slot save file"),
        (lambda m: fit(states(context=120)), "saved with a 100-token context, this engine has 120"),
        (
            lambda m: fit(states(type_k="f32", type_v="f32")),
            "saved with a f16 cache of keys.* keeps f32",
        ),
        (lambda m: fit(states(DECLARED[1:])), "layers do not match this model"),
        (lambda m: replace(fit(m), owners=(128,)), "cache shape does not match"),
        (lambda m: fit(states(DECLARED[:3])), "do not match this model"),
    ],
)
def test_a_file_for_something_else_is_refused(tmp_path, other, why):
    memory = states()
    write_slot(tmp_path / "a.bin", stored(memory), fit(memory))
    with pytest.raises(SlotFileError, match=why):
        read_slot(tmp_path / "a.bin", other(memory))


def test_every_damaged_byte_and_every_cut_is_noticed(tmp_path):
    memory = states([Ring("full", 1, 2, 2)])
    kept = Stored(np.arange(5, dtype=np.int32), memory.save(0, 5), (np.zeros(64, np.int32),))
    path = tmp_path / "a.bin"
    write_slot(path, kept, fit(memory))
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(SlotFileError):
            read_slot(path, fit(memory))
        path.write_bytes(whole[:at])
        with pytest.raises(SlotFileError):
            read_slot(path, fit(memory))
    path.write_bytes(whole + b"\0")
    with pytest.raises(SlotFileError, match="damaged"):
        read_slot(path, fit(memory))


def sealed(header: bytes, body: bytes = b"") -> bytes:
    """A file whose digest is right, whatever it says."""
    data = MAGIC + len(header).to_bytes(8, "little") + header + body
    return data + hashlib.sha256(data).digest()


@pytest.mark.parametrize(
    ("header", "body", "why"),
    [
        (b"{}", b"", "header cannot be read"),
        (b"[" * 5000, b"", "header cannot be read"),
        (b"", b"", "no sound length"),
        (
            b'{"model":"abc","context":100,"cache_k":"f16","cache_v":"f16","tokens":101,'
            b'"sections":[]}',
            b"",
            "does not fit",
        ),
        (
            b'{"model":"abc","context":100,"cache_k":"f16","cache_v":"f16","tokens":1,'
            b'"sections":[{"kind":"tokens","name":"","bytes":1000000000000}]}',
            b"1234",
            "truncated",
        ),
        (
            b'{"model":"abc","context":100,"cache_k":"f16","cache_v":"f16","tokens":1,'
            b'"sections":[{"kind":"tokens","name":"","bytes":4}]}',
            b"\1\0\0\0more",
            "trailing data",
        ),
        (
            b'{"model":"abc","context":100,"cache_k":"f16","cache_v":"f16","tokens":1,'
            b'"sections":[{"kind":"tokens","name":"","bytes":4},'
            b'{"kind":"checkpoint","name":"x","bytes":0}]}',
            b"\1\0\0\0",
            "no sound size or name",
        ),
    ],
)
def test_a_sealed_file_that_lies_is_refused(tmp_path, header, body, why):
    (tmp_path / "a.bin").write_bytes(sealed(header, body))
    with pytest.raises(SlotFileError, match=why):
        read_slot(tmp_path / "a.bin", fit(states()))


def test_what_is_no_slot_file(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"GGUF" * 100)
    for path in (tmp_path / "a.bin", Path("/dev/zero")):
        with pytest.raises(SlotFileError, match="not a golem slot file"):
            read_slot(path, fit(states()))
    with pytest.raises(OSError, match="No such file"):
        read_slot(tmp_path / "b.bin", fit(states()))


# ---- through an engine ----


@pytest.mark.parametrize("options", [{}, {"window": 16}, {"recurrent": True}])
def test_a_restored_slot_answers_as_one_that_never_left(tmp_path, options):
    path = tmp_path / "slot.bin"
    text = "a long beginning of a conversation, " * 12
    with Engine(FakeModel(context=1024, **options)) as engine:
        first = engine.submit(ask(text, max_tokens=8)).wait(WAIT)
        held = engine.slots[0].n_tokens
        tokens, size = engine.save(0, path)
        assert (tokens, size) == (held, path.stat().st_size)
        stayed = engine.submit(ask(text + first.text + "?", max_tokens=8)).wait(WAIT)
    with Engine(FakeModel(context=1024, slots=2, **options)) as engine:
        assert engine.restore(1, path) == (held, size)
        again = engine.submit(ask(text + first.text + "?", max_tokens=8)).wait(WAIT)
        assert (again.slot, again.text) == (1, stayed.text)
        assert again.cached_tokens == stayed.cached_tokens == held


def test_the_prompt_that_was_saved_costs_one_position(tmp_path):
    with Engine(FakeModel()) as engine:
        engine.submit(ask("the same prompt", max_tokens=1)).wait(WAIT)
        engine.save(0, tmp_path / "a")
    with Engine(FakeModel()) as engine:
        engine.restore(0, tmp_path / "a")
        result = engine.submit(ask("the same prompt", max_tokens=1)).wait(WAIT)
    assert (result.fed_tokens, result.cached_tokens) == (1, len("the same prompt") - 1)


def test_a_refused_file_empties_the_slot_and_no_other(tmp_path):
    (tmp_path / "bad").write_bytes(b"nothing")
    with Engine(FakeModel(slots=2)) as engine:
        for slot in (0, 1):
            engine.submit(ask("hello", max_tokens=2, id_slot=slot)).wait(WAIT)
        with pytest.raises(SlotFileError):
            engine.restore(0, tmp_path / "bad")
        assert [state.n_tokens for state in engine.slots] == [0, 6]


_KILLS = 100
_SAVE_LOOP = """
import os, random, signal, sys, time
import numpy as np
from pathlib import Path
from golem_core.state import Ring, States
from golem_core.state.slotfile import Fit, read_slot, write_slot
from golem_core.state.stored import Stored
states = States([Ring("full", 4, 64, 64)], 1, 500, 16)
path, fit = Path(sys.argv[1]), Fit("m", 100, states, ())

def save(number):
    states.rings["full"].k[...] = number
    write_slot(path, Stored(np.full(500, number, np.int32), states.save(0, 500)), fit)

random.seed(6)
save(0)
began = time.monotonic()
save(0)
took = time.monotonic() - began  # so that kills come during saves, on a busy machine too
held = 0
for _ in range(int(sys.argv[2])):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        while True:
            held = (held + 1) % 100
            os.write(writer, b"x")
            save(held)
    os.read(reader, 1)
    time.sleep(random.uniform(0, 2 * took))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader), os.close(writer)
    kept, _ = read_slot(path, fit)
    states.restore(0, 500, kept.states)
    keys, _ = states.rings["full"].lines(0, np.arange(500))
    values = {*kept.tokens.tolist(), *keys.ravel().tolist()}
    print(*values)
    (held,) = values
"""


def test_a_killed_writer_leaves_the_old_file_or_the_new_one(tmp_path):
    """A hundred times, at random moments: one whole state, its tokens and its values."""
    path = tmp_path / "slot.bin"
    command = [sys.executable, "-c", _SAVE_LOOP, str(path), str(_KILLS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    states = done.stdout.splitlines()
    assert len(states) == _KILLS
    assert len(set(states)) > 1  # new ones came through: how many, a busy disk decides
    assert len(list(tmp_path.iterdir())) > 1  # and some were cut off in the middle
