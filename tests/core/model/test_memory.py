"""Estimates equal what is allocated, and a model that does not fit is refused with what would."""

import math
from contextlib import closing

import numpy as np
import pytest

from golem_core.model import ModelError, estimate, memory, open_decoder
from golem_core.model.memory import group_limit, memory_limit, told_limit
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


TABLES = {
    "llama": ["token_embd.weight"],
    "qwen3-tied": [],  # it is the head, too
    "gemma4-e2b": ["token_embd.weight", "per_layer_token_embd.weight"],
    "gemma4-moe": ["token_embd.weight"],
}


@pytest.mark.parametrize("name", TABLES)
def test_weights_are_the_matrices_of_the_file_but_tables_of_rows(name, tiny_model, tmp_path):
    """Nothing is counted twice, and of a table in the map nothing is."""
    path = tiny_model(name)
    file = tiny.decoder(path).file
    tables = TABLES[name]
    if name.startswith("gemma4"):  # untie the head
        head = file.tensors["token_embd.weight"]
        untied = {"output.weight": np.asarray(head.data).view(np.float32).reshape(head.shape)}
        path = tiny.rewrite(path, tmp_path / "m.gguf", tensors=untied)
        file = tiny.decoder(path).file
    sizes = {n: t.nbytes for n, t in file.tensors.items() if len(t.shape) > 1}
    needs = estimate(path)
    assert needs.tables == sum(sizes[table] for table in tables)
    assert needs.weights == sum(sizes.values()) - needs.tables
    assert needs.total == needs.weights + needs.rings + needs.arena


def test_tables_count_where_the_file_is_read_into_memory(tiny_model):
    with closing(open_decoder(tiny_model("llama"), context=64)) as model:
        left_in_the_map = model.estimate
    with closing(open_decoder(tiny_model("llama"), context=64, mapped=False)) as model:
        assert model.estimate.total == left_in_the_map.total + left_in_the_map.tables


def test_blocks_that_share_keys_and_values_keep_none(tiny_model):
    """Of ten blocks five own: four sliding ones of 64, a full one of 128 values a head."""
    needs = estimate(tiny_model("gemma4-e2b"), context=4096, pass_width=48)
    assert needs.rings == (4 * 64 * (64 + 64) + 4096 * (128 + 128)) * 2
    assert needs.per_position == (128 + 128) * 2


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


def test_a_refusal_tells_whose_the_limit_is_and_what_is_free(tiny_model, monkeypatch, tmp_path):
    path, gib = tiny_model("llama"), 1 << 30
    with pytest.raises(ModelError, match=r"and 0\.5 GiB are allowed; "):
        open_decoder(path, context=1 << 24, parallel=16, limit=gib // 2)
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    monkeypatch.setattr(memory, "_own_groups", lambda: ["0::/unit"])
    monkeypatch.setattr(memory, "_machine", lambda: 4 * gib)
    assert told_limit(memory_limit(), False) == "this machine has 4.0 GiB"
    (tmp_path / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable:    {3 << 20} kB\n")
    assert told_limit(memory_limit(), False) == "this machine has 4.0 GiB, 3.0 of them free now"
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "memory.max").write_text(f"{2 * gib}\n")
    whose = "the control group of this process (a container or a unit) may use 2.0 GiB of the "
    assert told_limit(memory_limit(), False) == whose + "machine's 4.0"
    (tmp_path / "unit" / "memory.current").write_text(f"{3 * gib // 2}\n")
    caches = f"anon 5\ninactive_file {gib // 4}\nactive_file {gib // 4}\n"
    (tmp_path / "unit" / "memory.stat").write_text(caches)
    assert told_limit(memory_limit(), False) == whose + "machine's 4.0, 1.0 of them free now"


@pytest.mark.parametrize(
    ("line", "files", "limit"),
    [
        ("0::/system.slice/golem.service", {"system.slice/golem.service/memory.max": "2000"}, 2000),
        (
            "0::/a.slice/b.service",
            {"a.slice/memory.max": "300", "a.slice/b.service/memory.max": "max"},
            300,
        ),
        ("0::/", {"memory.max": "4000"}, 4000),
        ("0::/../seen/by/nobody", {"memory.max": "500"}, 500),
        (
            "4:memory:/one",
            {"memory/one/memory.limit_in_bytes": "600", "memory/memory.limit_in_bytes": "700"},
            600,
        ),
        ("4:memory:/docker/x", {"memory/memory.limit_in_bytes": "700"}, 700),
        ("7:cpu:/one", {"cpu/one/memory.max": "1"}, math.inf),
        ("0::/none", {}, math.inf),
    ],
)
def test_the_limit_of_a_group_or_of_one_above_it_counts(tmp_path, line, files, limit):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert group_limit(tmp_path, [line]) == limit
