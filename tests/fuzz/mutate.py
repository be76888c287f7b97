"""Ways to damage a file: of bytes anywhere, and of the integers that a format is built on."""

import random
from collections.abc import Sequence

Field = tuple[int, int]  # offset and size in bytes of a little-endian integer

_BOUNDARIES = [0, 1, 2, 3, 4, 7, 8, 9, 12, 13, 31, 32, 33, 255, 256, 65535, 65536]
_BOUNDARIES += [(1 << k) + d for k in (31, 32, 40, 53, 62, 63, 64) for d in (-1, 0)]


def damage(
    data: bytes, fields: Sequence[Field], donors: Sequence[bytes], rng: random.Random
) -> bytes:
    """``data`` with one to four things wrong with it; pieces of ``donors`` may get into it."""
    out = bytearray(data)
    fields = list(fields)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        if fields and rng.random() < 0.55:
            _spoil_field(out, fields, rng)
        else:
            rng.choice((_flip, _flip, _overwrite, _splice, _cut, _truncate, _extend))(
                out, donors, rng
            )
    return bytes(out)


def _spoil_field(out: bytearray, fields: list[Field], rng: random.Random) -> None:
    at, size = rng.choice(fields)
    if at + size > len(out):
        return
    old = int.from_bytes(out[at : at + size], "little")
    choice = rng.random()
    if choice < 0.35:
        new = rng.choice(_BOUNDARIES)
    elif choice < 0.6:
        new = old + rng.choice((-1, 1, 2, -8, 8, 32, 256, old, -old // 2))
    elif choice < 0.75:
        new = len(out) + rng.choice((-at, -at - size, 0, 1, -1))
    elif choice < 0.9:
        other, width = rng.choice(fields)
        new = int.from_bytes(out[other : other + width], "little")
    else:
        new = rng.getrandbits(8 * size)
    out[at : at + size] = (new % (1 << (8 * size))).to_bytes(size, "little")


def _flip(out: bytearray, donors: Sequence[bytes], rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        if out:
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)


def _overwrite(out: bytearray, donors: Sequence[bytes], rng: random.Random) -> None:
    if out:
        at = rng.randrange(len(out))
        size = min(rng.choice((1, 2, 4, 8, 16)), len(out) - at)
        out[at : at + size] = rng.choice((b"\x00", b"\xff", b"\x7f", b"\x80")) * size


def _splice(out: bytearray, donors: Sequence[bytes], rng: random.Random) -> None:
    donor = rng.choice(donors)
    size = rng.choice((1, 4, 8, 12, 24, 64))
    start = rng.randrange(max(1, len(donor) - size))
    at = rng.randrange(len(out) + 1)
    replaced = rng.choice((0, size))
    out[at : at + replaced] = donor[start : start + size]


def _cut(out: bytearray, donors: Sequence[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(out) + 1)
    del out[at : at + rng.choice((1, 4, 8, 33))]


def _truncate(out: bytearray, donors: Sequence[bytes], rng: random.Random) -> None:
    del out[rng.randrange(len(out) + 1) :]


def _extend(out: bytearray, donors: Sequence[bytes], rng: random.Random) -> None:
    out += rng.randbytes(rng.choice((1, 7, 32, 300)))
