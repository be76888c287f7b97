"""A mapped file that is cut short: reads give zeros and say so, and the process lives.

What might end the process happens in one of its own.
"""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from golem_core.formats.blocks import by_name
from golem_core.formats.gguf import GGUF
from golem_core.formats.writer import write_gguf
from tests.plugins import tiny

ROOT = Path(__file__).parents[3]
SIZE = 1 << 16  # weights


def child(code: str, *arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", "import mmap, os, sys\nimport numpy as np\n" + code]
    return subprocess.run(
        [*command, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def path(tmp_path):
    ones = ("t", (SIZE,), by_name("F32"), np.ones(SIZE, np.float32))
    return write_gguf(tmp_path / "a.gguf", {"words": ["a"] * 5000}, [ones])


def test_what_was_cut_off_reads_as_zeros_and_the_file_is_lost(path):
    done = child(
        """
from golem_core.formats.gguf import GGUF
with GGUF.open(sys.argv[1]) as file:
    weights = file.tensors["t"].data
    assert not weights.all() and not file.lost and not file.changed()
    kept = len(weights) // 2
    os.truncate(sys.argv[1], os.path.getsize(sys.argv[1]) - (len(weights) - kept))
    values = file.tensors["t"].numpy()
    whole = kept // 4 - 1024  # a page is cut in two
    assert (values[:whole] == 1).all() and (values[whole + 2048:] == 0).all()
    assert file.lost and file.changed()
    os.truncate(sys.argv[1], 0)
    assert (weights == 0).all()
    try:
        list(file.metadata["words"])
    except ValueError as error:
        print(error)
""",
        path,
    )
    assert done.returncode == 0, done.stderr


def test_a_copy_that_is_opened_again_is_not_lost(path):
    with GGUF.open(path) as file:
        data = file.tensors["t"].data
        assert not file.lost
    with GGUF.open(path) as file:
        assert not file.lost
    assert data.any()


@pytest.mark.parametrize("handler", ["", "import faulthandler; faulthandler.enable()"])
@pytest.mark.parametrize("early", [True, False])
def test_other_faults_end_the_process_as_they_did(path, handler, early):
    first, then = (handler, "") if early else ("", handler)
    done = child(
        f"""
{first}
from golem_core.formats.gguf import GGUF
file = GGUF.open(sys.argv[1])
{then}
with open(sys.argv[1] + ".other", "w+b") as other:
    other.truncate(1 << 16)
    foreign = mmap.mmap(other.fileno(), 0)
    other.truncate(0)
    foreign[1 << 15]
""",
        path,
    )
    assert done.returncode == -signal.SIGBUS, done
    assert ("Bus error" in done.stderr) == bool(handler)


def test_a_bus_error_that_somebody_sends_ends_the_process(path):
    done = child(
        "from golem_core.formats.gguf import GGUF\nimport signal\n"
        "file = GGUF.open(sys.argv[1])\nos.kill(os.getpid(), signal.SIGBUS)\nprint('alive')",
        path,
    )
    assert done.returncode == -signal.SIGBUS
    assert done.stdout == ""


def test_the_address_of_a_closed_map_is_watched_no_longer(path):
    done = child(
        """
from golem_core.formats.gguf import GGUF
file = GGUF.open(sys.argv[1])
size = os.path.getsize(sys.argv[1])
file.close()
del file
with open(sys.argv[1] + ".other", "w+b") as other:
    other.truncate(size)
    foreign = mmap.mmap(other.fileno(), 0)
    other.truncate(0)
    foreign[size - 1]
""",
        path,
    )
    assert done.returncode == -signal.SIGBUS


def test_a_pass_over_a_cut_file_ends_and_tells(tmp_path):
    path = tiny.write(tmp_path / "tiny.gguf", "qwen3-tied")
    done = child(
        """
from golem_core.model import open_decoder
from tests.plugins import tiny
model = open_decoder(sys.argv[1], context=256, threads=2, pass_width=64)
tokens = list(range(5, 40))
before = tiny.run(model.executor, (0, 0, tokens, 1))["logits"]
os.truncate(sys.argv[1], 1)
assert not model.file.lost
after = tiny.run(model.executor, (0, 0, tokens, 1))["logits"]
assert model.file.lost and model.file.changed()
assert not np.array_equal(before, after)
model.close()
""",
        path,
    )
    assert done.returncode == 0, done.stderr
