"""Hyperparameters: what a header may hold, and how a wrong value is refused."""

import numpy as np
import pytest

from golem_core.model import Hyper, ModelError


def hyper(**keys):
    named = {f"llama.{key.replace('__', '.')}": value for key, value in keys.items()}
    return Hyper(named, "llama", "m.gguf")


def test_keys_are_below_the_architecture_unless_they_start_with_a_dot():
    h = Hyper({"llama.block_count": 3, "general.name": "x"}, "llama", "m.gguf")
    assert h.integer("block_count") == 3
    assert h.text(".general.name") == "x"
    assert "block_count" in h and "general.name" not in h


def test_a_missing_key_is_named_with_the_file_and_what_is_expected():
    with pytest.raises(ModelError) as refusal:
        hyper().integer("block_count", high=99)
    assert str(refusal.value) == (
        "m.gguf: the key llama.block_count is missing; a whole number from 1 to 99 is expected"
    )


@pytest.mark.parametrize("value", [0, -1, 100, 2.0, "3", True, [1, 2], float("nan"), [], None])
def test_a_wrong_integer_is_refused_with_what_was_found(value):
    with pytest.raises(ModelError, match=r"m\.gguf: the key llama\.heads is .*1 to 99"):
        hyper(heads=value).integer("heads", high=99)


def test_an_array_that_repeats_one_number_counts_as_the_number():
    assert hyper(heads=np.array([4, 4, 4], np.uint32)).integer("heads") == 4


@pytest.mark.parametrize("value", ["x", float("inf"), float("nan"), True, -1.0])
def test_a_number_is_finite_and_in_range(value):
    with pytest.raises(ModelError, match="a finite number from 0"):
        hyper(eps=value).number("eps", low=0.0)


def test_a_whole_number_serves_as_a_number():
    assert hyper(base=10000).number("base") == 10000.0


def test_one_number_serves_every_block_and_an_array_gives_each_its_own():
    assert hyper(ff=7).integers("ff", 3) == (7, 7, 7)
    assert hyper(ff=np.array([1, 2, 3, 4])).integers("ff", 3) == (1, 2, 3)
    assert hyper().integers("ff", 2, (5, 6)) == (5, 6)


@pytest.mark.parametrize("value", [[1, 2], [1, 2, 0], [1, 2, "3"], "abc", 0])
def test_wrong_per_block_numbers_are_refused(value):
    with pytest.raises(ModelError, match="or 3 of them"):
        hyper(ff=value).integers("ff", 3)


def test_flags_come_one_a_block():
    assert hyper(swa=np.array([True, False])).flags("swa", 2) == (True, False)
    with pytest.raises(ModelError, match="an array of 3 truth values"):
        hyper(swa=[True]).flags("swa", 3)


def test_texts_and_truth_values_are_what_they_say():
    with pytest.raises(ModelError, match="a text is expected"):
        hyper(kind=3).text("kind")
    with pytest.raises(ModelError, match="true or false is expected"):
        hyper(causal=1).flag("causal")
    assert hyper(causal=False).flag("causal") is False


def test_a_long_value_is_cut_in_the_refusal():
    with pytest.raises(ModelError) as refusal:
        hyper(kind="x" * 1000).integer("kind")
    assert len(str(refusal.value)) < 200
