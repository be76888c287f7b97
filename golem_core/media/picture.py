"""Pictures: bytes of a file -> (height, width, 3) u8, upright, on white; and fitted for a tower.

PNG, JPEG, WebP, BMP and the first frame of GIF, told apart by their first bytes. The size in the
header is checked against the bound before anything is decoded.
"""

from __future__ import annotations

import io
import math
import warnings
from typing import Any

import numpy as np

from golem_core.media.errors import MediaError, need, one_line

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
KNOWN = "PNG, JPEG, WebP, GIF and BMP can"


def decode_picture(data: bytes, *, pixels: int = 64 << 20) -> np.ndarray:
    """The picture as (height, width, 3) u8.

    Turned as its EXIF orientation says, its transparency laid on white, 16-bit values rounded to
    8. pixels: most it may have. Raises MediaError.
    """
    image = need("PIL.Image", "a picture")
    if not data:
        raise MediaError(f"a picture of no bytes; {KNOWN} be read")
    try:
        with warnings.catch_warnings():
            # The bound below is the one that holds; Pillow's own warns at another size.
            warnings.simplefilter("ignore")
            with image.open(io.BytesIO(data), formats=FORMATS) as opened:
                return _pixels(image, opened, pixels)
    except MediaError:
        raise
    except image.UnidentifiedImageError:
        raise MediaError(f"not a picture of a known kind; {KNOWN} be read") from None
    except image.DecompressionBombError:
        # Pillow's own bound, which it looks at first; a larger one of ours does not lift it.
        most = min(pixels, 2 * image.MAX_IMAGE_PIXELS)
        raise MediaError(
            f"a picture of more than {most / 1e6:.1f} million pixels, which is the most"
        ) from None
    # A decoder of a hundred formats fails in every way there is; all mean the same here.
    except Exception as error:
        raise MediaError(f"a picture that cannot be decoded: {one_line(error)}") from None


def picture_of(given: Any) -> np.ndarray:
    """A picture that a program holds, as ``decode_picture`` gives one.

    given: a PIL image, or an array of (height, width), (height, width, 1), of three channels or,
    with alpha, four: u8, u16, or floats of 0 to 1. Raises MediaError.
    """
    if not isinstance(given, np.ndarray):
        image = need("PIL.Image", "a picture")
        if 0 in given.size:
            raise MediaError(f"a picture of {given.size[0]} x {given.size[1]} pixels")
        return np.array(_on_white(image, _eight_bits(image, _upright(given))))
    if given.ndim not in (2, 3) or given.shape[2:] not in ((), (1,), (3,), (4,)) or not given.size:
        raise MediaError(
            f"an array of the shape {given.shape} is no picture: it has a height, a width and 1, 3 "
            "or 4 channels"
        )
    if given.dtype == np.uint8:
        values = given
    elif given.dtype == np.uint16:
        values = np.rint(given * np.float32(255 / 65535)).astype(np.uint8)
    elif given.dtype.kind == "f":
        if not (np.isfinite(given).all() and given.min() >= 0 and given.max() <= 1):
            raise MediaError("a picture of floats has values from 0 to 1")
        values = np.rint(given * 255).astype(np.uint8)
    else:
        raise MediaError(f"a picture of {given.dtype} values: they are uint8, uint16 or floats")
    values = values.reshape(*values.shape[:2], -1)
    if values.shape[2] == 4:
        image = need("PIL.Image", "a picture")
        return np.array(_on_white(image, image.fromarray(np.ascontiguousarray(values))))
    return np.ascontiguousarray(np.broadcast_to(values, (*values.shape[:2], 3)))


def check_pixels(width: int, height: int, most: int) -> None:
    """Refuses a picture of no pixels, or of too many. Raises MediaError."""
    if width < 1 or height < 1:
        raise MediaError(f"a picture of {width} x {height} pixels")
    if width * height > most:
        raise MediaError(
            f"a picture of {width} x {height} pixels: {width * height / 1e6:.1f} million, and "
            f"{most / 1e6:.1f} million is the most"
        )


def _pixels(image: Any, opened: Any, most: int) -> np.ndarray:
    check_pixels(*opened.size, most)
    opened.load()
    return np.asarray(_on_white(image, _eight_bits(image, _upright(opened))))


def _upright(opened: Any) -> Any:
    """Turned as its EXIF says; as it lies where that cannot be read."""
    ops = need("PIL.ImageOps", "a picture")
    try:
        return ops.exif_transpose(opened)
    except Exception:  # of a block of bytes that is no part of the picture
        return opened


def _eight_bits(image: Any, opened: Any) -> Any:
    """Values of 16 or 32 bits as 8; Pillow's own conversion cuts them off instead."""
    if opened.mode in ("I;16", "I;16B", "I;16L", "I;16N", "I", "F"):
        values = np.asarray(opened).astype(np.float32)
        most = 65535.0 if opened.mode != "F" or values.max(initial=0) > 1 else 1.0
        scaled = np.nan_to_num(values * (255.0 / most)).clip(0, 255)
        return image.fromarray(np.rint(scaled).astype(np.uint8))
    return opened


def _on_white(image: Any, opened: Any) -> Any:
    """Three channels; what shows through is white."""
    if opened.mode in ("LA", "PA", "La", "RGBA", "RGBa") or "transparency" in opened.info:
        opened = opened.convert("RGBA")
        white = image.new("RGB", opened.size, (255, 255, 255))
        white.paste(opened, mask=opened)  # with no third copy of what may be many pixels
        return white
    return opened.convert("RGB")


def fitted_size(width: int, height: int, unit: int, least: int, most: int) -> tuple[int, int]:
    """The canvas a picture is fitted to: (width, height), multiples of ``unit``.

    As near to its own size as between ``least`` and ``most`` squares of that unit allow, and near
    to its shape: llama.cpp's rule, all in f32. Where the bounds are so close that the smallest
    canvas of its shape has too many squares, it is the largest that has not. Raises MediaError
    where no such canvas exists.
    """
    f = np.float32

    def nearest(side: int) -> int:
        return max(unit, math.floor(f(side) / f(unit) + f(0.5)) * unit)

    wide, high = nearest(width), nearest(height)
    if wide * high < least * unit * unit:
        by = np.sqrt(f(least * unit * unit) / f(width * height))
        wide, high = (math.ceil(f(s) * by / f(unit)) * unit for s in (width, height))
    if wide * high > most * unit * unit:
        by = np.sqrt(f(width * height) / f(most * unit * unit))
        wide, high = (max(unit, int(f(s) / by / f(unit)) * unit) for s in (width, height))
    if wide * high > most * unit * unit:
        raise MediaError(
            f"a picture of {width} x {height} pixels is too long for its width: it would take "
            f"{wide * high // unit**2} positions, and {most} is the most"
        )
    return wide, high


def fit(picture: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The picture in the middle of a black canvas of that (width, height), as large as it fits.

    Resized by Pillow's bicubic filter, byte for byte llama.cpp's; untouched where it fits already.
    """
    height, width = picture.shape[:2]
    if (width, height) == size:
        return picture
    image = need("PIL.Image", "a picture")
    f = np.float32
    scale = min(f(size[0]) / f(width), f(size[1]) / f(height))
    inner = tuple(
        min(math.ceil(f(side) * scale), most)
        for side, most in zip((width, height), size, strict=True)
    )
    small = image.fromarray(picture).resize(inner, image.Resampling.BICUBIC)
    canvas = np.zeros((size[1], size[0], 3), np.uint8)
    left, top = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
    canvas[top : top + inner[1], left : left + inner[0]] = np.asarray(small)
    return canvas
