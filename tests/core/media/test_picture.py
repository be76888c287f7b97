"""Pictures of every kind come out upright, on white and byte for byte; others are refused."""

import io
import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golem_core.media import MediaError, MissingPackage, decode_picture, fit, fitted_size
from tests.paths import data

Image = pytest.importorskip("PIL.Image", reason="the extra media is not installed")


def saved(image, kind, **options) -> bytes:
    made = io.BytesIO()
    image.save(made, kind, **options)
    return made.getvalue()


@pytest.fixture(scope="module")
def colours() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (9, 14, 3)).astype(np.uint8)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("PNG", {}), ("BMP", {}), ("WEBP", {"lossless": True})],
)
def test_kinds_without_loss_come_out_byte_for_byte(kind, options, colours):
    found = decode_picture(saved(Image.fromarray(colours), kind, **options))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, colours)


def test_jpeg_comes_out_as_pillow_decodes_it():
    smooth = np.add.outer(np.arange(32), np.arange(48))[..., None] * np.array([1, 2, 3])
    picture = saved(Image.fromarray(smooth.astype(np.uint8)), "JPEG", quality=95)
    found = decode_picture(picture)
    assert np.abs(found.astype(int) - smooth).mean() < 3
    grey = saved(Image.fromarray(smooth[..., 0].astype(np.uint8)), "JPEG", quality=95)
    found = decode_picture(grey)
    assert (found[..., 0] == found[..., 2]).all()
    cmyk = saved(Image.fromarray(smooth.astype(np.uint8)).convert("CMYK"), "JPEG", quality=95)
    assert decode_picture(cmyk).shape == (32, 48, 3)


def test_the_first_frame_of_a_gif_is_the_picture(colours):
    frames = [Image.fromarray(np.full((6, 8, 3), c, np.uint8)) for c in (10, 200)]
    made = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(decode_picture(made), np.full((6, 8, 3), 10, np.uint8))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_as_its_exif_says(orientation, colours):
    """What is saved turned the other way comes out as it was."""
    turned = {
        1: colours,
        2: colours[:, ::-1],
        3: colours[::-1, ::-1],
        4: colours[::-1],
        5: colours.transpose(1, 0, 2),
        6: np.rot90(colours, 1),
        7: np.rot90(colours, 2).transpose(1, 0, 2),
        8: np.rot90(colours, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    made = saved(Image.fromarray(np.ascontiguousarray(turned)), "PNG", exif=exif)
    np.testing.assert_array_equal(decode_picture(made), colours)


def test_what_shows_through_is_white(colours):
    alpha = np.zeros(colours.shape[:2], np.uint8)
    alpha[:, 5:] = 255
    alpha[0, 0] = 128
    found = decode_picture(saved(Image.fromarray(np.dstack([colours, alpha])), "PNG"))
    np.testing.assert_array_equal(found[:, 5:], colours[:, 5:])
    assert (found[1:, :5] == 255).all()
    half = 255 + (colours[0, 0].astype(float) - 255) * 128 / 255
    assert np.abs(found[0, 0] - half).max() <= 1


def test_palettes_and_their_transparent_colour():
    paletted = Image.new("P", (4, 2), 1)
    paletted.putpalette([9, 8, 7, 40, 50, 60])
    paletted.putpixel((0, 0), 0)
    found = decode_picture(saved(paletted, "PNG"))
    assert found[0, 0].tolist() == [9, 8, 7]
    assert found[1, 3].tolist() == [40, 50, 60]
    found = decode_picture(saved(paletted, "PNG", transparency=0))
    assert found[0, 0].tolist() == [255, 255, 255]
    assert found[1, 3].tolist() == [40, 50, 60]


def test_values_of_sixteen_bits_are_rounded_to_eight():
    values = np.array([[0, 257 * 100, 257 * 100 + 120, 65535]], np.uint16)
    found = decode_picture(saved(Image.fromarray(values), "PNG"))
    assert found[0, :, 0].tolist() == [0, 100, 100, 255]


def test_one_bit_and_grey_have_three_equal_channels():
    bits = Image.fromarray(np.array([[0, 255], [255, 0]], np.uint8)).convert("1")
    np.testing.assert_array_equal(
        decode_picture(saved(bits, "PNG")), np.array([[0, 255], [255, 0]])[..., None].repeat(3, 2)
    )


def test_a_bound_of_pixels_holds_before_anything_is_decoded():
    for side, said in (
        (12000, r"12000 x 12000 pixels: 144\.0 million, and 67\.1"),
        (30000, r"a picture of more than 67\.1 million pixels"),
    ):
        bomb = saved(Image.new("1", (side, side)), "PNG")
        assert len(bomb) < 200_000
        with pytest.raises(MediaError, match=said):
            decode_picture(bomb)
    with pytest.raises(MediaError, match="2 x 3 pixels"):
        decode_picture(saved(Image.new("RGB", (2, 3)), "PNG"), pixels=5)
    assert decode_picture(saved(Image.new("RGB", (2, 3)), "PNG"), pixels=6).shape == (3, 2, 3)


@pytest.mark.parametrize(
    ("bytes", "said"),
    [
        (b"", "a picture of no bytes; PNG, JPEG, WebP, GIF and BMP can be read"),
        (b"hello", "not a picture of a known kind; PNG, JPEG, WebP, GIF and BMP can be read"),
        (b"<svg></svg>", "not a picture of a known kind"),
        (b"II*\0" + bytes(64), "not a picture of a known kind"),  # TIFF is not served
    ],
)
def test_what_is_no_picture_is_said(bytes, said):
    with pytest.raises(MediaError, match=said):
        decode_picture(bytes)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP"])
def test_a_picture_cut_short_is_refused(kind):
    noise = np.random.default_rng(2).integers(0, 256, (60, 60, 3)).astype(np.uint8)
    whole = saved(Image.fromarray(noise), kind)
    with pytest.raises(MediaError, match=r"cannot be decoded|not a picture"):
        decode_picture(whole[: len(whole) // 2])


def test_a_missing_decoder_is_named_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingPackage, match=r'PIL is not installed .* pip install "golem-server'):
        decode_picture(b"x")


# ---- fitting


def test_canvas_sizes_are_llama_cpps():
    told = json.loads(data("media/image_sizes.json").read_text())
    assert len(told) > 20
    for one in told:
        found = fitted_size(*one["src"], 48, *one["limits"])
        assert list(found) == one["canvas"], one
        assert found[0] * found[1] // 48**2 == one["tokens"]


def test_a_fitted_picture_is_llama_cpps_byte_for_byte():
    picture = decode_picture(data("media/image_100x60.png").read_bytes())
    wanted = np.load(data("media/towers.npz"))["image_100x60.fit"]
    np.testing.assert_array_equal(fit(picture, fitted_size(100, 60, 48, 40, 280)), wanted)


def test_a_picture_of_the_canvas_size_is_not_touched():
    picture = np.random.default_rng(3).integers(0, 256, (48, 96, 3)).astype(np.uint8)
    assert fit(picture, (96, 48)) is picture


@given(st.integers(1, 3000), st.integers(1, 3000), st.sampled_from((70, 140, 280)))
def test_bounds_that_leave_no_choice_still_have_a_canvas(width, height, rows):
    """No multiples of the unit may be exactly so many: then the largest below is taken."""
    if max(width, height) < 20 * min(width, height):
        wide, high = fitted_size(width, height, 48, rows, rows)
        assert 0.4 * rows < wide // 48 * (high // 48) <= rows


def test_a_picture_no_canvas_has_room_for_is_refused():
    with pytest.raises(MediaError, match="1 x 100000 pixels is too long for its width"):
        fitted_size(1, 100000, 48, 70, 1120)
