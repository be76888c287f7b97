"""``-mlock``: everything that passes read is locked, and a refusal is a warning with the remedy."""

import ctypes
import errno
import re
import resource
from pathlib import Path

import pytest

from golem_core.model import mlock, open_decoder

SETTINGS = {"context": 128, "threads": 1, "pass_width": 16}


def locked() -> int:
    """Bytes of this process that the system keeps in memory."""
    return int(re.search(r"VmLck:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) << 10


def states(model) -> int:
    return model.executor.states.nbytes


@pytest.fixture
def asked(monkeypatch):
    """What was asked of the system, which lets everything."""
    asked = {}
    monkeypatch.setattr(mlock._libc, "mlock", lambda at, size: asked.update({at: size}) or 0)
    return asked


@pytest.mark.parametrize("name", ["llama", "qwen3-tied", "qwen3moe", "gemma3"])
def test_repacked_weights_the_token_table_and_states_are_locked(tiny_model, asked, name):
    model = open_decoder(tiny_model(name), mlock=True, **SETTINGS)
    table = model.file.tensors["token_embd.weight"].data
    assert asked[table.ctypes.data] == table.nbytes
    assert sum(asked.values()) == states(model) + model.executor.weights.nbytes + table.nbytes
    model.close()


def test_the_reference_executor_reads_the_files_own_weights(tiny_model, asked):
    model = open_decoder(tiny_model("llama"), mlock=True, executor="reference", **SETTINGS)
    matrices = sum(t.nbytes for t in model.file.tensors.values() if len(t.shape) > 1)
    assert sum(asked.values()) == states(model) + matrices
    model.close()


def test_the_system_counts_them_as_locked_and_closing_unlocks(tiny_model):
    before = locked()
    model = open_decoder(tiny_model("llama"), mlock=True, **SETTINGS)
    wanted = states(model) + model.executor.weights.nbytes
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] < 2 * wanted and locked() < wanted:
        model.close()
        pytest.skip("this process may not lock as much (ulimit -l)")
    assert locked() - before >= wanted
    model.close()
    del model
    assert locked() - before < wanted / 10


def test_a_refusal_is_a_warning_that_names_the_limit_to_raise(tiny_model, monkeypatch, caplog):
    def refuse(address, size):
        ctypes.set_errno(errno.ENOMEM)
        return -1

    monkeypatch.setattr(mlock._libc, "mlock", refuse)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (64 << 10, 64 << 10))
    model = open_decoder(tiny_model("llama"), mlock=True, **SETTINGS)
    (record,) = caplog.records
    table = model.file.tensors["token_embd.weight"].nbytes
    wanted = -(-(states(model) + model.executor.weights.nbytes + table) // 1024)
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "-mlock: the system does not keep the model in memory (Cannot allocate memory), so it may "
        f"be swapped out; {wanted} KiB are needed and the limit is 64 KiB: raise it with "
        f"ulimit -l {wanted}, or with LimitMEMLOCK= in a systemd unit"
    )
    model.close()


def test_nothing_is_locked_unless_it_was_asked_for(tiny_model, asked):
    open_decoder(tiny_model("llama"), **SETTINGS).close()
    assert asked == {}
