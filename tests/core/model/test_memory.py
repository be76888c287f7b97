"""Estimates equal what is allocated, and a model that does not fit is refused with what would."""

import pytest

from golem_core.model import ModelError, estimate, open_decoder
from golem_core.state import States
from tests.plugins import tiny


def program(path, width=128):
    return tiny.decoder(path).program(width, 64)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_rings_are_what_the_states_allocate(name, tiny_model):
    path = tiny_model(name)
    needs = estimate(path, context=2000, parallel=4, pass_width=128)
    states = States(program(path).states, 4, 500, 128)
    assert needs.rings == states.nbytes


def test_weights_are_those_of_the_file_and_a_tied_table_counts_once(tiny_model):
    for name in ("llama", "qwen3-tied"):
        path = tiny_model(name)
        matrices = sum(
            t.nbytes for t in tiny.decoder(path).file.tensors.values() if len(t.shape) > 1
        )
        assert estimate(path).weights == matrices


def test_a_sliding_window_costs_less_than_the_context(tiny_model):
    """Five of gemma3's six blocks keep a window of 16 and a pass; one position costs one block."""
    needs = estimate(tiny_model("gemma3"), context=4096, pass_width=48)
    assert needs.rings == (4096 + 5 * 64) * (128 + 128) * 2
    assert needs.per_position == (128 + 128) * 2


def test_the_activations_of_the_widest_pass_are_counted(tiny_model):
    path = tiny_model("llama")
    narrow, wide = (estimate(path, pass_width=w).arena for w in (64, 128))
    assert narrow < wide
    assert wide >= 128 * (2 * 512 + 256) * 4  # gate, up and the residual live together


def test_what_does_not_fit_is_refused_with_the_context_that_would(tiny_model):
    path = tiny_model("llama")
    fits = estimate(path, context=8192, parallel=2)
    with pytest.raises(ModelError, match=r"-context (\d+) would fit") as refusal:
        open_decoder(path, context=65536, parallel=2, limit=fits.total + 100)
    offered = int(str(refusal.value).split("-context ")[1].split()[0])
    assert 8192 - 512 <= offered <= 8192
    assert estimate(path, context=offered, parallel=2).total <= fits.total + 100


def test_no_context_helps_where_the_weights_alone_are_too_much(tiny_model):
    with pytest.raises(ModelError, match="no -context would fit"):
        open_decoder(tiny_model("llama"), limit=1 << 20)
