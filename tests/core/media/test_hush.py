"""What a decoder prints about foreign bytes stays out of the log, and nothing else does."""

import ctypes
import io
import random
from contextlib import suppress

import numpy as np
import pytest

from golem_core.media.errors import MediaError
from golem_core.media.hush import hushed
from golem_core.media.sound import decode_sound

soundfile = pytest.importorskip("soundfile", reason="the extra media is not installed")


def print_in_c(text: bytes) -> None:
    libc = ctypes.CDLL(None)
    libc.fputs(text, ctypes.c_void_p.in_dll(libc, "stderr"))


def damaged_recordings():
    """An MP3 with bytes changed, and cut."""
    made, random_bytes = io.BytesIO(), random.Random(1)
    noise = 0.1 * np.random.default_rng(0).standard_normal(16000)
    soundfile.write(made, noise, 16000, format="MP3", subtype="MPEG_LAYER_III")
    for _ in range(20):
        data = bytearray(made.getvalue())
        for _ in range(50):
            data[random_bytes.randrange(len(data))] = random_bytes.randrange(256)
        yield bytes(data[: random_bytes.randrange(len(data) // 2, len(data))])


def test_damaged_recordings_print_nothing(capfd):
    recordings = list(damaged_recordings())
    for data in recordings:
        with suppress(soundfile.LibsndfileError):
            soundfile.read(io.BytesIO(data))
    if not capfd.readouterr().err:
        pytest.skip("this libsndfile prints nothing by itself")
    for data in recordings:
        with suppress(MediaError):
            decode_sound(data)
    assert capfd.readouterr() == ("", "")


def test_what_c_prints_comes_back_when_the_last_is_out(capfd):
    with hushed():
        print_in_c(b"one ")
        with hushed():
            print_in_c(b"two ")
        print_in_c(b"three ")
    print_in_c(b"four")
    assert capfd.readouterr().err == "four"


def test_it_comes_back_after_an_error(capfd):
    with pytest.raises(MediaError), hushed():
        raise MediaError("x")
    print_in_c(b"after")
    assert capfd.readouterr().err == "after"
