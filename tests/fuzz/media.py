"""Pictures and recordings with damaged headers, chunks and data.

A case damages a file of any kind and decodes it, as what it is and sometimes as the other sort. It
must come out as pixels or samples within the bounds asked for, or be refused with a MediaError of
one line.
"""

import io
import random
import struct
import zlib
from pathlib import Path

import numpy as np

from golem_core.media import MediaError, decode_picture, decode_sound
from golem_core.media.picture import fit, fitted_size
from tests.fuzz.harness import Case
from tests.fuzz.mutate import Field, damage

PIXELS = 1 << 16
SECONDS = 2.0


def prepare(folder: Path) -> Case:
    """Make the sound files; each case damages one of them."""
    pictures, sounds = list(_pictures()), list(_sounds())
    seeds = [(data, True) for data in pictures] + [(data, False) for data in sounds]
    fields = [_header_fields(data) for data, _ in seeds]
    donors = [data for data, _ in seeds]
    # Whatever the decoders load, they load before memory is counted.
    for data, is_picture in seeds:
        examine(data, is_picture)

    def case(rng: random.Random) -> bool:
        which = rng.randrange(len(seeds))
        data, is_picture = seeds[which]
        spoiled = damage(data, fields[which], donors, rng)
        if spoiled.startswith(b"\x89PNG") and rng.random() < 0.7:
            spoiled = _with_sums(spoiled)
        return examine(spoiled, is_picture if rng.random() < 0.95 else not is_picture)

    return case


def examine(data: bytes, is_picture: bool) -> bool:
    """Decode; False when it is refused as it should be."""
    try:
        if is_picture:
            pixels = decode_picture(data, pixels=PIXELS)
            assert pixels.dtype == np.uint8
            assert pixels.ndim == 3 and pixels.shape[2] == 3
            assert 0 < pixels.shape[0] * pixels.shape[1] <= PIXELS
            size = fitted_size(pixels.shape[1], pixels.shape[0], 48, 2, 40)
            assert fit(pixels, size).shape == (size[1], size[0], 3)
        else:
            samples = decode_sound(data, seconds=SECONDS)
            assert samples.dtype == np.float32
            assert 0 < len(samples) <= 16000 * SECONDS + 16
            assert np.isfinite(samples).all()
    except MediaError as error:
        text = str(error)
        assert "\n" not in text and len(text) < 400, text
        return False
    return True


def _pictures():
    from PIL import Image

    rng = np.random.default_rng(1)
    colours = Image.fromarray(rng.integers(0, 256, (24, 31, 3)).astype(np.uint8))
    alpha = Image.fromarray(rng.integers(0, 256, (9, 13, 4)).astype(np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6

    def saved(image, kind, **options) -> bytes:
        made = io.BytesIO()
        image.save(made, kind, **options)
        return made.getvalue()

    yield saved(colours, "PNG", exif=exif)
    yield saved(alpha, "PNG")
    yield saved(colours.convert("P"), "PNG", transparency=3)
    yield saved(Image.fromarray(rng.integers(0, 65536, (8, 8)).astype(np.uint16)), "PNG")
    yield saved(colours.convert("1"), "PNG")
    yield saved(colours, "JPEG", exif=exif)
    yield saved(colours, "JPEG", progressive=True, quality=60)
    yield saved(colours.convert("CMYK"), "JPEG")
    yield saved(alpha, "WEBP")
    yield saved(colours, "WEBP", lossless=True)
    yield saved(colours, "GIF", save_all=True, append_images=[colours.rotate(90)])
    yield saved(colours, "BMP")
    yield saved(colours.convert("P"), "BMP")


def _sounds():
    import soundfile

    rng = np.random.default_rng(2)
    for format, subtype, rate, channels in (
        ("WAV", "PCM_16", 16000, 1),
        ("WAV", "FLOAT", 44100, 2),
        ("WAV", "IMA_ADPCM", 8000, 1),
        ("WAVEX", "PCM_24", 22050, 2),
        ("FLAC", "PCM_16", 16000, 1),
        ("OGG", "VORBIS", 16000, 1),
        ("OGG", "OPUS", 48000, 2),
        ("MP3", None, 24000, 1),
    ):
        samples = rng.uniform(-0.5, 0.5, (rate // 5, channels)).astype(np.float32)
        made = io.BytesIO()
        soundfile.write(made, samples, rate, format=format, subtype=subtype)
        yield made.getvalue()


def _header_fields(data: bytes) -> list[Field]:
    """Integers of the first bytes, which is where all of these formats keep their sizes."""
    return [(at, size) for at in range(4, min(len(data), 64), 2) for size in (1, 2, 4)]


def _with_sums(data: bytes) -> bytes:
    """A PNG whose chunks have the sums of what is in them now: what is damaged gets further."""
    out, at = bytearray(data[:8]), 8
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        body = data[at + 4 : at + 8 + length]
        out += data[at : at + 4] + body + struct.pack(">I", zlib.crc32(body))
        at += 12 + length
    return bytes(out) + data[at:]
