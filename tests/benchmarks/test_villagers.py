"""The five villagers at a small scale: what copies of the state leave to read."""

import pytest

from benchmarks.villagers import DRAWN, ENDING, Village, prompts, table, talk
from golem_core.model import open_decoder
from tests.plugins.conftest import tiny_model

__all__ = ["tiny_model"]

SHEET = 1500


@pytest.fixture(scope="module")
def model(tiny_model):
    made = open_decoder(
        tiny_model("qwen35"), context=5 * (SHEET + ENDING + DRAWN + 64), parallel=5, threads=2
    )
    yield made
    made.close()


def village(model, shared, checkpoints):
    talks = prompts(480, SHEET, shared, seed=1)
    return talk(model, talks, 1 if shared else 5, checkpoints)


def test_one_sheet_is_read_once_and_after_that_the_endings_alone(model):
    assert village(model, True, 0).read == 15 * (SHEET + ENDING)
    assert village(model, True, 3).read == SHEET + 15 * ENDING


def test_sheets_of_their_own_are_read_once_each(model):
    assert village(model, False, 3).read == 5 * (SHEET + 3 * ENDING)


def test_the_table_has_ratios_of_seconds():
    made = table({"a": (Village(8.0, 9.0, 100, 2.0), Village(2.0, 3.0, 10, 0.5))})
    wanted = "| a | 100 | 8.0 | 9.0 | 2.0 | 10 | 2.0 | 3.0 | 0.5 | 4.00 | 3.00 |"
    assert made.splitlines()[-1] == wanted
