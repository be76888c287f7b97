"""When a prediction block is asked, and what is believed of what it says."""

from types import SimpleNamespace

import numpy as np
import pytest
from golem_core.schedule._ngram import Ngram

from golem_core.schedule.draft import Drafting
from golem_core.schedule.foresight import AGAIN, EXPECTED, Foreseen, Foresight
from golem_core.schedule.pace import Prices
from tests.core.schedule.fakes import FakeClock

END = 9


class Block:
    """A prediction block that counts on: token + 1, as sure as told, each pass so long."""

    def __init__(self, clock, seconds=0.0, scores=5.0):
        self.program = SimpleNamespace(inputs={})
        self.seen = []
        self._clock, self._seconds, self._scores = clock, seconds, scores

    def run(self, inputs, wanted):
        assert wanted == ("logits", "hidden")
        self._clock.now += self._seconds
        self.seen.append({name: array.tolist() for name, array in inputs.items()})
        logits = np.zeros((len(inputs["tokens"]), 12), np.float32)
        rows = np.arange(len(logits))
        logits[rows, (inputs["tokens"] + 1) % 12] = self._scores
        return {"logits": logits, "hidden": inputs["hidden"] + 1}


class Talker:
    drawing, width, media = True, 1, None

    def __init__(self, token=0, slot=0, count=7, room=99, said=None):
        self.tokens, self.draftable, self.draft = [token], room, []
        self.slot = SimpleNamespace(index=slot, count=count)
        self.drafter = Foreseen(said)
        self.drafter.hidden = np.zeros(2, np.float32)

    def without_end(self, tokens):
        return tokens[: tokens.index(END)] if END in tokens else tokens


def prices(**seconds):
    made = Prices()
    for columns, took in seconds.items():
        made.saw(int(columns[1:]), took)
    return made


def planned(
    block_seconds, line, *answers, kind="mtp", longest=0, columns=64, rewinds=True, scores=5.0
):
    clock = FakeClock()
    block = Block(clock, block_seconds, scores)
    foresight = Foresight(block, rewinds, line, clock)
    drafting = Drafting(kind, longest, columns, line, foresight)
    drafting.plan(answers)
    if block_seconds:  # now it is known what a guess costs
        for answer in answers:
            answer.drafter.told([-1])
            answer.drafter._hits, answer.drafter._tries = EXPECTED, 1.0
        block.seen.clear()
        drafting.plan(answers)
    return block, [answer.draft for answer in answers]


def test_a_guess_goes_on_from_itself_at_the_next_index():
    block, drafts = planned(0.0, prices(w1=1.0), Talker(3, slot=2, count=40), longest=3)
    assert drafts == [[4, 5, 6]]
    assert [seen["tokens"] for seen in block.seen] == [[3], [4], [5]]
    assert [seen["runs"] for seen in block.seen] == [[[2, 0, 1, 40 + i, 0]] for i in range(3)]
    assert [seen["hidden"] for seen in block.seen] == [[[i, i]] for i in range(3)]


def test_all_who_draw_share_its_passes():
    talkers = Talker(1, slot=0), Talker(5, slot=1, count=9, room=1)
    block, drafts = planned(0.0, prices(w1=1.0), *talkers, longest=2)
    assert drafts == [[2, 3], [6]]
    assert [seen["tokens"] for seen in block.seen] == [[1, 5], [2]]


def test_who_has_no_row_yet_is_not_guessed_for():
    talker = Talker()
    talker.drafter.hidden = None
    block, drafts = planned(0.0, prices(w1=1.0), talker)
    assert drafts == [[]] and not block.seen


def test_an_end_is_not_guessed_and_nothing_after_it():
    assert planned(0.0, prices(w1=1.0), Talker(END - 3))[1] == [[END - 2, END - 1]]


def test_no_more_is_guessed_than_a_pass_can_score():
    block, drafts = planned(0.0, prices(w1=1.0), Talker(0), Talker(4), columns=5)
    assert sum(map(len, drafts)) == 3 and all(drafts)
    assert sum(len(seen["tokens"]) for seen in block.seen) == 3


def test_scores_that_are_no_numbers_guess_nothing():
    assert planned(0.0, prices(w1=1.0), Talker(), scores=np.nan)[1] == [[]]


@pytest.mark.parametrize(
    ("seconds", "line", "rewinds", "asked"),
    [
        (0.05, {"w1": 1.0, "w2": 1.05, "w3": 1.1}, True, True),  # a guess is cheap, so is a column
        (0.8, {"w1": 1.0, "w2": 1.05, "w3": 1.1}, True, False),  # a guess takes as long as a token
        (0.05, {"w1": 1.0, "w2": 1.9, "w3": 2.8}, True, False),  # a column does
        (0.2, {"w1": 1.0, "w2": 1.42, "w3": 1.84}, True, True),  # just worth it: .7 for .62
        (0.2, {"w1": 1.0, "w2": 1.42, "w3": 1.84}, False, False),  # unless it must be read again
    ],
)
def test_it_is_asked_where_that_saves_time(seconds, line, rewinds, asked):
    block, _ = planned(seconds, prices(**line), Talker(), rewinds=rewinds, longest=1)
    assert bool(block.seen) is asked


def test_guesses_that_fail_are_asked_for_less_and_tried_again_after_a_while():
    drafter = Foreseen()
    assert drafter.rate == pytest.approx(EXPECTED)
    for _ in range(40):
        drafter.guessed(5, 0.9)
        drafter.told([6])
    assert drafter.rate < 0.05
    assert drafter.guessed(5, 0.9) < 0.1 < drafter.guessed(5, 0.999)  # counted by confidence
    drafter.told([5, 7])
    for _ in range(AGAIN):
        drafter.told([1])
    assert drafter.rate == EXPECTED


def test_chances_come_to_lie_where_guesses_come_true():
    """Whatever the block believes of itself."""
    rng = np.random.default_rng(1)
    drafter, chances = Foreseen(), []
    for _ in range(600):
        chances.append(drafter.guessed(1, 0.97))
        drafter.told([int(rng.random() < 0.6)])
    assert abs(np.mean(chances[100:]) - 0.6) < 0.05


def test_only_the_guesses_up_to_the_first_that_failed_are_counted():
    one, two = Foreseen(), Foreseen()
    for drafter, guesses in ((one, [4, 5, 6]), (two, [4, 5])):
        for token in guesses:
            drafter.guessed(token, 0.9)
        drafter.told([4, 8])
    assert one.rate == two.rate


def test_what_was_said_before_comes_first_where_it_is_surer():
    """auto: n-grams cost no pass; the block is asked where they know less than it does."""
    sure = Talker(3, said=Ngram(np.array([1, 2, 3, 4, 5, 6] * 12 + [1, 2, 3], np.int32)))
    for _ in range(3):
        sure.drafter.told([4, 5, 6, 1, 2, 3])
    block, drafts = planned(0.0, prices(w1=1.0), sure, kind="auto", longest=4)
    assert drafts == [[4, 5, 6, 1]] and not block.seen
    unsure = Talker(3, said=Ngram(np.array([1, 2, 3], np.int32)))
    block, drafts = planned(0.0, prices(w1=1.0), unsure, kind="auto", longest=2)
    assert drafts == [[4, 5]] and block.seen
