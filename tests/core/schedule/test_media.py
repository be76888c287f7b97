"""Prompts with pictures and sound: what is drawn after them, what is reused, how passes go."""

import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from golem_core.media import MediaError
from golem_core.model import open_decoder
from golem_core.model.media import Limits, Positions
from golem_core.model.projector import Rows
from golem_core.sample import ParamError, SamplerParams
from golem_core.schedule import (
    ContextExceeded,
    Engine,
    EngineClosed,
    ModelChanged,
    QueueFull,
    Request,
)
from golem_core.schedule.answer import Answer
from golem_core.schedule.media import Media, Span, keys
from golem_core.schedule.pace import Pace
from golem_core.schedule.passes import PROMPT, form
from golem_core.schedule.prefix import RingOwners
from golem_core.schedule.slots import Kept, Slot
from tests.plugins.projectors import picture, recording, write_projector

GREEDY = SamplerParams(temperature=0.0)
WIDTH = 256


@pytest.fixture(scope="module")
def mmproj(tmp_path_factory):
    return write_projector(tmp_path_factory.mktemp("projectors") / "both.gguf", WIDTH)


@pytest.fixture(scope="module")
def opened(tiny_model, mmproj):
    """opened("dense", pass_width=16) -> a model with a projector."""
    models = []

    def open_one(name, **more):
        settings = {"context": 1024, "threads": 2, "pass_width": 64} | more
        limits = Limits(tokens=(2, 40))
        model = open_decoder(tiny_model(f"gemma4-{name}"), mmproj=mmproj, media=limits, **settings)
        models.append(model)
        return model

    yield open_one
    for model in models:
        model.close()


def rows(count, seed=1, both_ways=False, positions=None):
    embeddings = np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)
    return Rows("image", bytes([seed]) * 32, embeddings, both_ways, positions)


def prompt(*parts):
    """Tokens and spans of a prompt: ints are tokens, Rows pictures."""
    tokens, spans = [], []
    for part in parts:
        if isinstance(part, Rows):
            spans.append(Span(len(tokens), part))
            tokens += [0] * len(part)
        else:
            tokens.append(part)
    return {"tokens": tokens, "media": spans}


def greedy(model, given, count=6):
    """What the executor itself draws, the prompt being fed in one pass."""
    spans, ids = given["media"], list(given["tokens"])
    n = len(ids)
    place, until = np.full(n, -1, np.int32), np.arange(n, dtype=np.int32)
    first = 0
    for span in spans:
        here = slice(span.first, span.last + 1)
        place[here] = first + np.arange(len(span.rows))
        if span.rows.both_ways:
            until[here] = span.last
        first += len(span.rows)
    inputs = {
        "runs": np.array([[0, 0, n, 0, 1]], np.int32),
        "tokens": np.array(ids, np.int32),
        "outputs": np.array([n - 1], np.int32),
        "embeddings": np.concatenate([s.rows.embeddings for s in spans]),
        "place": place,
        "until": until,
    }
    drawn = []
    for i in range(count):
        drawn.append(int(model.executor.run(inputs)["logits"][0].argmax()))
        inputs = {
            "runs": np.array([[0, 0, 1, n + i, 0]], np.int32),
            "tokens": np.array(drawn[-1:], np.int32),
            "outputs": np.zeros(1, np.int32),
        }
    return drawn


def draw(engine, given, count=6, **more):
    return engine.submit(Request(**given, max_tokens=count, params=GREEDY, **more)).wait(60)


TEXT = [5, 17, 100, 42, 8, 9, 33]


@pytest.mark.parametrize("name", ["e2b", "dense"])
def test_what_is_drawn_after_a_picture_is_what_one_pass_over_it_gives(name, opened):
    """Several pictures, one wider than a pass; fed by an engine whose passes hold 16 columns."""
    wide = opened(name, pass_width=256)
    both = name == "dense"
    seen = [rows(30, 1, both), rows(9, 2, both)]
    given = prompt(*TEXT, seen[0], 7, *TEXT, seen[1], 3, 4)
    wanted = greedy(wide, given)
    narrow = opened(name, pass_width=16)
    with Engine(narrow) as engine:
        found = draw(engine, given)
        assert list(found.tokens) == wanted
        assert found.media_tokens == {"image": 39, "audio": 0}
        assert found.prompt_tokens == len(given["tokens"])


def test_the_same_pictures_continue_a_conversation_and_others_part_from_it(opened):
    model = opened("e2b")
    first = prompt(*TEXT, rows(20, 1), 3)
    with Engine(model) as engine:
        one = draw(engine, first)
        again = draw(engine, prompt(*TEXT, rows(20, 1), 3))
        assert again.cached_tokens == len(first["tokens"]) - 1
        assert again.tokens == one.tokens
        other = draw(engine, prompt(*TEXT, rows(20, 2), 3))
        assert other.cached_tokens == len(TEXT)
        assert other.tokens != one.tokens
        text = draw(engine, {"tokens": first["tokens"]})
        assert text.cached_tokens == len(TEXT)  # padding that is no picture
        longer = prompt(*TEXT, rows(20, 1), 3, *one.tokens[:-1], 9, rows(5, 3), 11)
        draw(engine, first)
        turn = draw(engine, longer)
        assert turn.cached_tokens == len(first["tokens"]) + len(one.tokens) - 1
        assert turn.media_tokens == {"image": 25, "audio": 0}


def test_reading_never_goes_on_inside_of_a_picture_that_is_seen_at_once(opened):
    """Its first half fed before its second existed would be another picture."""
    model = opened("dense")
    seen = rows(30, 1, both_ways=True)
    given = prompt(*TEXT, seen)  # ends with the picture: its last position must be fed again
    with Engine(model) as engine:
        once = draw(engine, given)
        again = draw(engine, given)
        assert again.cached_tokens == len(TEXT)
        assert again.tokens == once.tokens


def test_a_picture_is_drawn_after_alike_whoever_shares_its_passes(opened):
    model = opened("dense", parallel=3, context=3072)
    given = [prompt(*TEXT, rows(20 + i, i + 1, True), 7 + i) for i in range(3)]
    with Engine(model) as engine:
        alone = [list(draw(engine, one, 12, cache_prompt=False).tokens) for one in given]
        jobs = [
            engine.submit(Request(**one, max_tokens=12, params=GREEDY, cache_prompt=False))
            for one in given
        ]
        assert [list(job.wait(60).tokens) for job in jobs] == alone


# ---- how passes are cut


def answers(*given, at=0, drawing=0):
    """Answers in slots as ``form`` sees them; the last ``drawing`` of them draw."""
    made = []
    for i, one in enumerate(given):
        tokens = np.array(one["tokens"], np.int32)
        media = Media(tokens, one["media"], WIDTH) if one["media"] else None
        slot = Slot(i, 4096, RingOwners([]), None)
        job = SimpleNamespace(
            request=Request(**one), report=lambda progress: None, slot=-1, state=None
        )
        energy = SimpleNamespace(read=lambda: None)
        ids = tokens if media is None else media.ids
        answer = Answer(job, ids, None, None, frozenset(), -1, 0.0, energy, None, media)
        answer.enter(slot, Kept(0, at, None), 0.0)
        slot.fed(ids[:at], at)
        if i >= len(given) - drawing:
            answer.tokens.append(3)
        made.append(answer)
    return made


def cuts(made, width, widest):
    """The columns of every pass until all prompts are read: [(answer, count), …] each."""
    passes = []
    while any(not a.drawing and a.unread for a in made):
        reading = [a for a in made if a.drawing or a.unread]
        batch = form(reading, width, 1, Pace(), widest)
        passes.append([(made.index(r.answer), r.count) for r in batch.runs])
        for run in batch.runs:
            run.answer.fed(run.count, 0.0) if run.role == PROMPT else None
    return passes


def test_a_picture_seen_at_once_is_one_run_whatever_its_length():
    made = answers(prompt(*TEXT, rows(30, 1, True), 1, 2))
    assert cuts(made, 16, 94) == [[(0, 7)], [(0, 30)], [(0, 2)]]
    made = answers(prompt(*TEXT, rows(8, 1, True), 1, 2))
    assert cuts(made, 16, 94) == [[(0, 16)], [(0, 1)]]
    made = answers(prompt(*TEXT, rows(30, 1, False), 1, 2))
    assert cuts(made, 16, 94) == [[(0, 16)], [(0, 16)], [(0, 7)]]


def test_others_share_what_a_picture_leaves_of_a_pass_and_draws_are_never_held_back():
    made = answers(prompt(rows(12, 1, True), 1), prompt(*range(20)), prompt(1, 2), drawing=1)
    (first, *rest) = cuts(made, 20, 94)
    assert first[:2] == [(2, 1), (0, 12)]
    assert sum(count for _, count in first) <= 20
    assert all(batch[0] == (2, 1) for batch in rest)
    made = answers(prompt(rows(40, 1, True), 1), prompt(rows(50, 2, True), 1))
    assert cuts(made, 20, 94) == [[(0, 40)], [(1, 50)], [(0, 1), (1, 1)]]


def test_what_a_pass_binds_are_the_rows_of_its_columns_in_their_places():
    one, two = rows(4, 1, True), rows(3, 2, False)
    made = answers(prompt(9, one, 8), prompt(7, 6, two))
    batch = form(made, 64, 1, Pace(), 94)
    inputs = batch.inputs
    order = [run.answer for run in batch.runs]
    first = {id(run.answer): run.first for run in batch.runs}
    assert {id(a) for a in order} == {id(a) for a in made}
    for answer, skip, taken in ((made[0], 1, one), (made[1], 2, two)):
        columns = first[id(answer)] + skip + np.arange(len(taken))
        found = inputs["embeddings"][inputs["place"][columns]]
        np.testing.assert_array_equal(found, taken.embeddings)
        last = skip + len(taken) - 1
        wanted = [last] * len(taken) if taken.both_ways else range(skip, last + 1)
        assert inputs["until"][columns].tolist() == list(wanted)
    assert (inputs["place"] >= 0).sum() == 7
    assert inputs["tokens"][inputs["place"] >= 0].tolist() == [0] * 7
    assert "positions" not in inputs


def test_positions_on_several_axes_go_on_behind_a_picture():
    """A picture of 2 x 3 at position 2: text goes on at 2 + max(2, 3), drawn columns too."""
    at, axis = np.zeros(6, np.int32), np.arange(6, dtype=np.int32)
    given = Positions(np.stack([at, axis // 3, axis % 3], 1), advance=3)
    media = Media(np.arange(12, dtype=np.int32), [Span(2, rows(6, positions=given))], WIDTH)
    assert media.positions[:2].tolist() == [[0] * 3, [1] * 3]
    assert media.positions[2:8].tolist() == [[2, 2 + i // 3, 2 + i % 3] for i in range(6)]
    assert media.positions[8:].tolist() == [[5 + i] * 3 for i in range(4)]
    assert media.shift == -3
    made = answers(prompt(1, 2, rows(6, positions=given), 3, 4), prompt(5, 6))
    inputs = form(made, 64, 1, Pace(), 64).inputs
    assert inputs["positions"].shape == (12, 3)
    assert inputs["positions"][:2].tolist() == [[0] * 3, [1] * 3]  # the other conversation's own
    assert inputs["positions"][-1].tolist() == [6] * 3
    made[0].fed(10, 0.0)
    made[0].tokens.append(3)
    inputs = form(made[:1], 64, 1, Pace(), 64).inputs
    assert inputs["positions"].tolist() == [[7] * 3]
    assert "embeddings" not in inputs


def test_what_stands_for_rows_in_the_ids_tells_pictures_places_and_lengths_apart():
    one = keys(rows(5, 1))
    assert (one < 0).all()
    assert len(set(one.tolist())) == 5
    np.testing.assert_array_equal(one, keys(rows(5, 1)))
    for other in (rows(5, 2), rows(6, 1)):
        assert not (keys(other)[:5] == one).any()


def test_rows_that_do_not_fit_are_refused(opened, tiny_model):
    tokens = np.zeros(6, np.int32)
    for spans in ([Span(3, rows(4))], [Span(0, rows(3)), Span(2, rows(2))]):
        with pytest.raises(ParamError, match="of 6"):
            Media(tokens, spans, WIDTH)
    with pytest.raises(ParamError, match="rows of 256 values; this model reads 72"):
        Media(tokens, [Span(0, rows(2))], 72)
    blind = open_decoder(tiny_model("gemma4-e2b"), context=256, threads=1)
    with Engine(blind) as engine:
        with pytest.raises(ParamError, match="without a projector that can see"):
            engine.submit(Request(**prompt(1, rows(3), 2)))
        with pytest.raises(MediaError, match="without a projector that can hear"):
            engine.rows("audio", recording())
    blind.close()


# ---- towers beside conversations


def test_pictures_are_seen_between_the_passes_of_a_conversation(opened):
    """Both get what they would alone, and the conversation draws on meanwhile."""
    model = opened("e2b", parallel=2, context=2048)
    alone = model.projector.rows("image", picture(11)).embeddings
    given = {"tokens": TEXT, "media": ()}
    with Engine(model) as engine:
        quiet = draw(engine, given, 200, cache_prompt=False).tokens
        job = engine.submit(Request(**given, max_tokens=200, params=GREEDY, cache_prompt=False))
        model.projector._kept.clear()
        before = engine.stats.passes
        found = engine.rows("image", picture(11))
        assert engine.stats.passes >= before
        np.testing.assert_array_equal(found.embeddings, alone)
        assert job.wait(60).tokens == quiet


def test_passes_do_not_wait_for_a_request_whose_picture_is_being_seen(opened, monkeypatch):
    """That takes many passes, each of which would come later by an eighth."""
    model = opened("e2b")
    executor = model.projector._eyes["image"].executor
    begin, waited_for = executor.begin, []
    with Engine(model) as engine:

        def begun(*arguments):
            waited_for.append(engine._runner.entering)
            return begin(*arguments)

        monkeypatch.setattr(executor, "begin", begun)
        with engine.entering():
            engine.rows("image", picture(17))
            waited_for.append(engine._runner.entering)
        waited_for.append(engine._runner.entering)
        with pytest.raises(MediaError), engine.entering():
            engine.rows("image", b"no picture")
        waited_for.append(engine._runner.entering)
    assert waited_for == [0, 1, 0, 0]


def test_whoever_waits_for_a_picture_may_leave_and_nobody_waits_when_the_engine_ends(opened):
    model = opened("e2b")
    engine = Engine(model)
    with pytest.raises(EngineClosed):
        engine.rows("image", picture(12))
    held = threading.Event()
    begin = model.projector._eyes["image"].executor.begin

    class Left(Exception):
        pass

    def leave():
        raise Left

    def slow(*arguments):
        held.wait(30)
        return begin(*arguments)

    executor = model.projector._eyes["image"].executor
    executor.begin = slow
    try:
        engine.start()
        with pytest.raises(Left):
            engine.rows("image", picture(12), leave)
        held.set()
        executor.begin = begin
        assert len(engine.rows("image", picture(12)))  # the towers are free again
        heard = engine.rows("audio", recording(3))
        assert heard.embeddings.shape[1] == WIDTH
    finally:
        executor.begin = begin
        held.set()
        engine.close()
    with pytest.raises(EngineClosed):
        engine.rows("image", picture(13))


def test_nothing_is_looked_at_for_a_request_that_could_not_wait(opened, monkeypatch):
    """A queue of none, and a slot that is taken: the refusal comes before the bytes are decoded."""
    model = opened("e2b")
    held, run = threading.Event(), model.executor.run
    looked = []
    decoded = model.projector._decoded
    monkeypatch.setattr(
        model.projector, "_decoded", lambda *given: looked.append(given) or decoded(*given)
    )

    def slow(*arguments, **more):
        held.wait(30)
        return run(*arguments, **more)

    monkeypatch.setattr(model.executor, "run", slow)
    with Engine(model, queue=0) as engine:
        try:
            job = engine.submit(Request(tokens=TEXT, max_tokens=3, params=GREEDY))
            with pytest.raises(QueueFull):
                engine.rows("image", picture(14))
            assert not looked and engine.stats.refused == 1
        finally:
            held.set()
        job.wait(30)
        assert len(engine.rows("image", picture(14))) and looked


@pytest.mark.parametrize("how", ["cut", "written over"])
def test_nothing_is_seen_by_a_projector_whose_file_has_changed(how, tiny_model, tmp_path):
    """What is remembered still serves; what it would make now is of other weights, or of zeros."""
    path = write_projector(tmp_path / "both.gguf", WIDTH)
    model = open_decoder(
        tiny_model("gemma4-e2b"),
        mmproj=path,
        media=Limits(tokens=(2, 40)),
        context=1024,
        threads=1,
        pass_width=64,
    )
    with Engine(model) as engine:
        seen = engine.rows("image", picture(15))
        if how == "cut":
            os.truncate(path, 5000)
        else:
            path.write_bytes(bytes(path.stat().st_size))
        for kind, data in (("image", picture(16)), ("audio", recording(3))):
            with pytest.raises(ModelChanged, match=r"both\.gguf changed on disk .* restart"):
                engine.rows(kind, data)
        assert engine.rows("image", picture(15)) is seen
        assert len(draw(engine, {"tokens": TEXT, "media": ()}).tokens) == 6
    model.close()


def test_a_recording_is_heard_no_further_than_it_fits(opened, monkeypatch):
    """Ninety seconds are three pieces of 750 rows; a slot of 1024 positions is full after two."""
    model = opened("e2b", context=1024)
    tower, heard = model.projector.towers["audio"], []
    real = tower.pieces
    monkeypatch.setattr(
        tower, "pieces", lambda medium: (heard.append(1) or one for one in real(medium))
    )
    samples = np.random.default_rng(1).uniform(-0.5, 0.5, 90 * 16000).astype(np.float32)
    with Engine(model) as engine, pytest.raises(ContextExceeded, match="at least 1500 tokens"):
        engine.rows("audio", samples)
    assert len(heard) == 2
