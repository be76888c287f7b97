"""Pictures in Qwen3.5's prompts: rows in a plane, text behind them, recurrent states between."""

import numpy as np
import pytest

from golem_core.model import open_decoder
from golem_core.model.media import Limits
from golem_core.sample import SamplerParams
from golem_core.schedule import Engine, Request
from golem_core.schedule.media import Span
from tests.plugins.projectors import picture, write_projector

GREEDY = SamplerParams(temperature=0.0)
TEXT = [5, 17, 100, 42, 8, 9, 33]


@pytest.fixture(scope="module")
def opened(tiny_model, tmp_path_factory):
    """opened(pass_width=…) -> the tiny delta net with eyes."""
    mmproj = write_projector(tmp_path_factory.mktemp("eyes") / "mmproj.gguf", 256, "qwen35")
    models = []

    def open_one(**more):
        settings = {"context": 1024, "threads": 2, "media": Limits(tokens=(2, 40))} | more
        models.append(open_decoder(tiny_model("qwen35"), mmproj=mmproj, **settings))
        return models[-1]

    yield open_one
    for model in models:
        model.close()


def plane(rows, position):
    """(t, h, w) of every row of a picture whose first row is at a position, written anew."""
    offsets = rows.positions.offsets
    wide = int(offsets[:, 2].max()) + 1
    return [(position, position + i // wide, position + i % wide) for i in range(len(rows))]


def by_hand(parts, draws, model):
    """Greedy tokens after a prompt fed in one pass, positions as the model's authors have them."""
    tokens, place, positions, rows, at = [], [], [], [], 0
    for part in parts:
        if isinstance(part, int):
            tokens.append(part)
            place.append(-1)
            positions.append((at, at, at))
            at += 1
            continue
        place += [sum(map(len, rows)) + i for i in range(len(part))]
        tokens += [0] * len(part)
        positions += plane(part, at)
        rows.append(part.embeddings)
        at += max(part.positions.offsets.max(0)[1:]) + 1  # text goes on behind the longer side
    inputs = {
        "runs": np.array([[0, 0, len(tokens), 0, 1]], np.int32),
        "tokens": np.array(tokens, np.int32),
        "outputs": np.array([len(tokens) - 1], np.int32),
        "embeddings": np.concatenate(rows),
        "place": np.array(place, np.int32),
        "positions": np.array(positions, np.int32),
    }
    drawn = []
    for i in range(draws):
        drawn.append(int(model.executor.run(inputs)["logits"][0].argmax()))
        inputs = {
            "runs": np.array([[0, 0, 1, len(tokens) + i, 0]], np.int32),
            "tokens": np.array(drawn[-1:], np.int32),
            "outputs": np.zeros(1, np.int32),
            "positions": np.full((1, 3), at + i, np.int32),
        }
    return drawn


def request(parts, **more):
    tokens, spans = [], []
    for part in parts:
        if isinstance(part, int):
            tokens.append(part)
        else:
            spans.append(Span(len(tokens), part))
            tokens += [0] * len(part)
    return Request(tokens=tokens, media=spans, params=GREEDY, **more)


def test_what_is_drawn_after_pictures_is_what_one_pass_over_them_gives(opened):
    """In passes of 16 columns, two pictures, one longer than a pass, each side the longer once."""
    wide = opened(pass_width=256)
    flat = wide.projector.rows("image", picture(1, width=90, height=30))
    high = wide.projector.rows("image", picture(2, width=20, height=50))
    assert len(flat) > 16
    parts = [*TEXT, flat, 7, *TEXT, high, 3, 4]
    wanted = by_hand(parts, 6, wide)
    with Engine(opened(pass_width=16)) as engine:
        found = engine.submit(request(parts, max_tokens=6)).wait(60)
        assert list(found.tokens) == wanted
        again = engine.submit(request([*parts, *wanted, 9], max_tokens=3)).wait(60)
        assert again.cached_tokens > len(TEXT) + len(flat)  # the state goes on behind pictures
        afresh = by_hand([*parts, *wanted, 9], 3, wide)
        assert list(again.tokens) == afresh
