"""Pictures and sound in a conversation in Python: every way to give one is the same one."""

import base64
import io

import numpy as np
import pytest

import golem_core
from golem_core.media import MediaError, decode_picture, decode_sound, picture_of, sound_of
from golem_core.schedule import ContextExceeded
from tests.plugins import tiny
from tests.plugins.projectors import picture, recording, write_projector, write_seeing_model

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed")


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeing")
    plain = tiny.write(folder / "plain.gguf", "gemma4-e2b", "F32")
    write_seeing_model(folder / "model.gguf", plain)
    write_projector(folder / "mmproj.gguf", 256)
    with golem_core.open(
        folder / "model.gguf", mmproj=folder / "mmproj.gguf", context=1024, threads=1
    ) as opened:
        yield opened


def ask(session, *parts):
    turn = {"role": "user", "content": [*parts, {"type": "text", "text": "what?"}]}
    return session.chat([turn], temperature=0, max_tokens=6).result


def test_every_way_to_give_a_picture_is_the_same_picture(session, tmp_path):
    data = picture(3)
    path = tmp_path / "cat.png"
    path.write_bytes(data)
    uri = "data:image/png;base64," + base64.b64encode(data).decode()
    opened = Image.open(io.BytesIO(data))
    ways = [data, bytearray(data), path, str(path), f"file://{path}", uri]
    decoded = [opened, np.asarray(opened), np.asarray(opened) / 255]
    parts = [{"type": "image", "image": way} for way in ways]
    parts += [{"type": "image_url", "image_url": {"url": way}} for way in (str(path), uri)]
    first = ask(session, parts[0])
    for part in parts[1:]:
        again = ask(session, part)
        assert again.text == first.text
        assert again.cached_tokens == first.prompt_tokens - 1  # it is known as the same picture
    held = [ask(session, {"type": "image", "image": way}) for way in decoded]
    assert [one.text for one in held] == [first.text] * 3
    assert held[2].cached_tokens == first.prompt_tokens - 1
    other = ask(session, {"type": "image", "image": picture(4)})
    assert other.cached_tokens < other.prompt_tokens - 4


def test_every_way_to_give_a_recording_is_the_same_recording(session, tmp_path):
    data = recording(3, rate=24000)
    path = tmp_path / "words.wav"
    path.write_bytes(data)
    text = base64.b64encode(data).decode()
    parts = [
        {"type": "audio", "audio": data},
        {"type": "audio", "audio": path},
        {"type": "audio", "audio": "data:audio/wav;base64," + text},
        {"type": "input_audio", "input_audio": {"data": text, "format": "wav"}},
    ]
    first, *others = [ask(session, part) for part in parts]
    assert [one.text for one in others] == [first.text] * 3
    assert {one.cached_tokens for one in others} == {first.prompt_tokens - 1}
    for kind in ("float32", "int16"):
        samples, rate = soundfile.read(io.BytesIO(data), dtype=kind)
        held = ask(session, {"type": "audio", "audio": samples, "rate": rate})
        assert held.text == first.text


def test_samples_and_pixels_are_those_of_the_decoders():
    data = recording(5, rate=44100)
    samples, rate = soundfile.read(io.BytesIO(data), dtype="int16")
    assert np.array_equal(sound_of(samples, rate), decode_sound(data))
    beside = np.stack([samples, np.zeros_like(samples)], 1)
    assert np.allclose(sound_of(beside, rate), decode_sound(data) / 2, atol=1e-6)
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 4)).astype(np.uint8)
    made = io.BytesIO()
    Image.fromarray(pixels).save(made, "PNG")
    assert np.array_equal(picture_of(pixels), decode_picture(made.getvalue()))
    grey = pixels[:, :, 0]
    for given in (grey, grey[:, :, None], grey.astype(np.uint16) * 257, grey / 255):
        assert np.array_equal(picture_of(given), np.repeat(grey[:, :, None], 3, 2))
    turned = Image.new("RGB", (4, 2))
    turned.getexif()[0x0112] = 6  # lies on its side
    assert picture_of(turned).shape == (4, 2, 3)


@pytest.mark.parametrize(
    ("part", "kind", "reason"),
    [
        ({"type": "image", "image": "http://x/cat.png"}, ValueError, "nothing is fetched"),
        ({"type": "image", "image": b"GIF"}, MediaError, "not a picture of a known kind"),
        ({"type": "image", "image": 7}, TypeError, "holds a int; it takes a path, bytes"),
        ({"type": "image", "image": "data:image/png,x"}, MediaError, "that is not base64"),
        ({"type": "image", "image": np.zeros((2, 2, 2))}, MediaError, "is no picture"),
        ({"type": "image", "image": np.full((2, 2), 2.0)}, MediaError, "values from 0 to 1"),
        ({"type": "image", "image": np.zeros((2, 2), "i8")}, MediaError, "they are uint8"),
        ({"type": "image", "image": "gone.png"}, FileNotFoundError, "gone.png"),
        ({"type": "audio", "audio": np.zeros(99)}, MediaError, 'samples need their "rate"'),
        ({"type": "audio", "audio": np.zeros(0), "rate": 16000}, MediaError, "is no recording"),
        ({"type": "audio", "audio": np.full(99, np.nan), "rate": 16000}, MediaError, "no numbers"),
        ({"type": "audio", "audio": np.zeros(99), "rate": 1}, MediaError, "at 1 Hz"),
        (
            {"type": "audio", "audio": np.zeros(99, bool), "rate": 16000},
            MediaError,
            "floats, int16",
        ),
        ({"type": "input_audio", "input_audio": {"data": "???"}}, MediaError, "cannot be decoded"),
        ({"type": "video", "video": b""}, ValueError, "the types are text, image, image_url"),
        ({"type": "text"}, TypeError, 'has a "text" that is one'),
    ],
)
def test_what_cannot_be_taken_is_refused_by_its_place(session, part, kind, reason):
    with pytest.raises(kind) as told:
        ask(session, {"type": "text", "text": "look"}, part)
    assert reason in str(told.value)
    if kind is not FileNotFoundError:
        assert str(told.value).startswith("messages[0], part 1")


def test_arguments_are_checked_before_anything_is_looked_at(session):
    with pytest.raises(TypeError, match="max_tokens"):
        session.chat(
            [{"role": "user", "content": [{"type": "image", "image": "gone.png"}]}], max_tokens="x"
        )


def test_no_more_is_looked_at_than_fits(session, monkeypatch):
    looked = []
    real = session.engine.rows
    monkeypatch.setattr(
        session.engine, "rows", lambda *given: (looked.append(given), real(*given))[1]
    )
    pictures = [{"type": "image", "image": picture(seed)} for seed in range(30)]
    with pytest.raises(ContextExceeded):
        ask(session, *pictures)
    assert len(looked) < 20  # of at least 70 rows each, and 1024 positions


def test_marks_in_a_text_are_no_places(session):
    """Neither in a message nor in what a tool is described with."""
    turn = {"type": "text", "text": "<|image|> and <|audio|>"}
    assert ask(session, turn, {"type": "image", "image": picture(3)}).drawn_tokens > 0
    plain = session.chat([{"role": "user", "content": "<|image|>"}], max_tokens=1)
    assert plain.result.drawn_tokens == 1
