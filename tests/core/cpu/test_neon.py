"""The NEON kernels, compiled for AArch64 and run under qemu, against this machine's portable ones.

``python -m ref.aarch64`` runs every test of the executor there; this one is for every day.
"""

import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest
from golem_core.cpu._executor import UNARY_KINDS

from golem_core.cpu import CpuExecutor
from ref.aarch64 import COMPILER, TOOLS, emulator, missing_tools
from tests.core.cpu.linear_cases import (
    CODE_TYPES,
    FLOAT_TYPES,
    TYPES,
    pack,
    prepare,
    product,
    random_rows,
    values,
)
from tests.core.cpu.test_functions import GRID, program

CPU = Path(__file__).parents[3] / "golem_core" / "cpu"
SOURCES = ["linear_neon.c", "linear_types.c", "repack.c", "dequant.c"]
FLAGS = ["-O1", "-std=gnu11", "-fno-math-errno", "-ffp-contract=off", "-static"]
PRODUCT, FUNCTION, HALVES = range(3)
HEADER = 8  # int32 of a request


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    """Answers to requests, from a program of the other architecture."""
    if platform.machine() == "aarch64":
        pytest.skip("here the other tests run these kernels themselves")
    if missing := missing_tools():
        pytest.skip(f"no {' and no '.join(missing)} here; {TOOLS}")
    made = tmp_path_factory.mktemp("neon") / "door"
    sources = [Path(__file__).with_name("neon_door.c"), *(CPU / "kernels" / s for s in SOURCES)]
    command = [COMPILER, *FLAGS, f"-I{CPU}", *sources, "-o", made, "-lm"]
    subprocess.run([str(part) for part in command], check=True)

    def ask(*requests: bytes) -> np.ndarray:
        command = [emulator(), "-cpu", "cortex-a76", made]
        done = subprocess.run(command, input=b"".join(requests), stdout=subprocess.PIPE, check=True)
        return np.frombuffer(done.stdout, "<f4")

    return ask


def header(*fields: int) -> bytes:
    return np.array([*fields, *[0] * (HEADER - len(fields))], "<i4").tobytes()


def widths(name: str) -> list[int]:
    """One block, three, and a row whose last superblock is used in part."""
    block = TYPES[name][1]
    return [block, 3 * block, 512 + block] if block > 1 else [1, 7, 130]


# Columns of a pass, and those that are asked for: blocks of four, of two, one alone; not the first.
TURNS = [(9, 0, 9), (5, 1, 1), (7, 4, 3), (1, 0, 1)]


def cases(name: str):
    """Requests with the number of columns asked for, and what this machine makes of them."""
    rng = np.random.default_rng(TYPES[name][0])
    for width in widths(name):
        rows = random_rows(name, 21, width, rng)
        for n, first, count in TURNS:
            x = rng.standard_normal((n, width)).astype(np.float32) * 3
            for prompt in (0, 1):
                ask = header(PRODUCT, TYPES[name][0], 21, width, n, first, count, prompt)
                yield ask + rows.tobytes() + x.tobytes(), (rows, x, width, first, count, prompt)


def split(answers: np.ndarray, counts: list[int]) -> list[np.ndarray]:
    """The products (count, 32) of each request: two groups of rows came one after the other."""
    made, at = [], 0
    for count in counts:
        part = answers[at : at + 32 * count].reshape(2, count, 16)
        made.append(part.transpose(1, 0, 2).reshape(count, 32))
        at += 32 * count
    assert at == answers.size
    return made


@pytest.mark.parametrize("name", CODE_TYPES)
def test_products_of_codes_have_the_bits_of_the_portable_kernels(door, name):
    asked = list(cases(name))
    made = split(door(*(ask for ask, _ in asked)), [count for _, (*_, count, _) in asked])
    for mine, (_, (rows, x, width, first, count, prompt)) in zip(made, asked, strict=True):
        how = "prompt" if prompt else "one"
        columns, _ = prepare(name, x, how, "portable")
        groups = pack(name, rows, width)
        theirs = product("portable", name, groups, width, columns, first, count, how)
        assert mine.tobytes() == theirs.tobytes(), (width, first, count, how)


@pytest.mark.parametrize("name", FLOAT_TYPES)
def test_products_of_floats_are_exact_to_f32_rounding_and_the_same_in_any_batch(door, name):
    asked = list(cases(name))
    made = split(door(*(ask for ask, _ in asked)), [count for _, (*_, count, _) in asked])
    for mine, (_, (rows, x, width, first, count, _)) in zip(made, asked, strict=True):
        x = x[first : first + count]
        weights = values(name, rows).astype(np.float64)
        bound = np.abs(x.astype(np.float64)) @ np.abs(weights).T
        error = np.abs(mine[:, :21] - x.astype(np.float64) @ weights.T)
        assert np.max(error / bound) < 1e-6
        assert not mine[:, 21:].any()  # rows that fill the last group
        alone = [
            header(PRODUCT, TYPES[name][0], 21, width, 1, 0, 1) + rows.tobytes() + column.tobytes()
            for column in x
        ]
        assert np.concatenate(split(door(*alone), [1] * count)).tobytes() == mine.tobytes()


def sixteens() -> np.ndarray:
    """The points of the functions' tests in whole vectors."""
    return np.resize(GRID.reshape(-1), (len(GRID), 16)).astype("<f4")


# softplus asks the C library, which is another one there.
@pytest.mark.parametrize("kind", sorted(set(UNARY_KINDS) - {"softplus"}))
def test_functions_have_the_bits_of_the_portable_ones(door, kind, monkeypatch):
    x = sixteens()
    made = door(header(FUNCTION, UNARY_KINDS[kind], len(x)) + x.tobytes())
    monkeypatch.setenv("GOLEM_CPU", "portable")
    with CpuExecutor(program(kind), threads=1) as ex:
        theirs = ex.run({"x": x.reshape(-1)[: GRID.size].reshape(GRID.shape)}, ("y",))["y"].copy()
    mine = made[: GRID.size]
    there = np.isfinite(theirs.reshape(-1))
    np.testing.assert_array_equal(np.isfinite(mine), there)
    assert mine[there].tobytes() == theirs.reshape(-1)[there].tobytes()


def test_halves_round_as_numpy_has_it(door):
    """Subnormals, overflow and ties included."""
    x = sixteens()
    x[0, :8] = [65519, 65520, 2**-24, 2**-25, 3 * 2**-25, 1 + 2**-11, 1 + 3 * 2**-11, 6.1e-5]
    made = door(header(HALVES, 0, len(x)) + x.tobytes())
    with np.errstate(over="ignore"):
        truth = x.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(made, truth.reshape(-1))
