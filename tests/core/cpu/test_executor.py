"""The executor's door: planning on demand, refusals, closing, forking, loading, threads."""

import gc
import mmap
import multiprocessing
import os
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from golem_core.cpu import CpuExecutor, PassCancelled, features
from golem_core.cpu.cores import physical_cores, quota, usable_cpus
from golem_core.formats.blocks import by_name
from golem_core.graph.builder import Builder
from golem_core.graph.values import ProgramError
from golem_core.graph.weights import Weight
from golem_core.reference import ReferenceExecutor
from tests.core.cpu.decoders import Maker, decoder, one_pass
from tests.rounding import ROOM, columns_rounded, median_distance, prompt_rule


def make(program=None, **options) -> CpuExecutor:
    options = {"slots": 2, "context": 64, "threads": 2} | options
    return CpuExecutor(decoder() if program is None else program, **options)


def logits_of(executor, passes) -> np.ndarray:
    """Of all columns of the passes, one after the other: (columns, vocabulary)."""
    return np.concatenate([executor.run(inputs)["logits"].copy() for inputs in passes])


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def no_more_than(before: int) -> bool:
    """Whether threads have ended; a joined one may stay listed for a moment."""
    until = time.monotonic() + 5
    while threads() > before and time.monotonic() < until:
        os.sched_yield()
    return threads() <= before


@pytest.mark.parametrize("isa", features()["available"] + features()["emulated"])
def test_a_decoder_is_as_far_from_the_reference_as_rounding_its_columns_takes_it(isa, monkeypatch):
    monkeypatch.setenv("GOLEM_CPU", isa)
    program = decoder("Q8_0", head_norms=True)
    truth, rounded = (ReferenceExecutor(program, slots=2, context=64) for _ in range(2))
    with make(program) as ex:
        for runs in ([(1, 20, 0, 1)], [(1, 1, 20, 0), (0, 9, 0, 1)], [(0, 1, 9, 0), (1, 1, 21, 0)]):
            passes = [one_pass(*runs, seed=seed) for seed in range(6)]  # few columns vary by chance
            mine, theirs = (logits_of(e, passes) for e in (ex, truth))
            with columns_rounded(prompt_rule(isa)):
                expected = median_distance(logits_of(rounded, passes), theirs)
            assert 1e-4 < median_distance(mine, theirs) < ROOM * expected


def test_scoring_nothing_gives_empty_logits_and_still_stores_the_prompt():
    with make() as whole, make() as cut:
        everything = whole.run(one_pass((0, 12, 0, 1)))["logits"].copy()
        nothing = cut.run(one_pass((0, 8, 0, 1), scored="none"))["logits"]
        assert nothing.shape == (0, everything.shape[1])
        rest = cut.run(one_pass((0, 4, 8, 1)))["logits"]
        np.testing.assert_array_equal(rest, everything[8:])


def test_a_run_at_index_0_starts_from_empty_whatever_the_slot_held():
    with make() as used, make() as fresh:
        used.run(one_pass((0, 30, 0, 1), seed=5))
        again, first = (e.run(one_pass((0, 10, 0, 1)))["logits"] for e in (used, fresh))
        np.testing.assert_array_equal(again, first)


def test_nan_in_a_ring_does_not_reach_a_slot_that_starts_anew():
    with make() as used, make() as fresh:
        for ring in used.states.rings.values():
            ring.k[...] = np.nan
            ring.v[...] = np.nan
        for runs in ([(0, 10, 0, 1)], [(0, 1, 10, 0)]):
            mine, theirs = (e.run(one_pass(*runs))["logits"] for e in (used, fresh))
            np.testing.assert_array_equal(mine, theirs)


def test_positions_may_differ_from_the_index():
    inputs = one_pass((0, 5, 0, 1))
    with make() as ex:
        plain = ex.run(inputs)["logits"].copy()
        same = ex.run({**inputs, "positions": np.arange(5, dtype=np.int32)})["logits"].copy()
        other = ex.run({**inputs, "positions": np.arange(5, dtype=np.int32) * 3})["logits"]
        np.testing.assert_array_equal(plain, same)
        assert np.abs(plain - other).max() > 1e-3


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"tokens": np.array([0, 1, 96], np.int32)}, 'input "tokens" holds 0 to 96'),
        ({"tokens": np.array([0, -1, 2], np.int32)}, 'input "tokens" holds -1 to 2'),
        ({"tokens": np.zeros((3, 2), np.int32)}, 'input "tokens" is (3, 2)'),
        ({"tokens": np.zeros(3, np.float32)}, 'input "tokens" is float32'),
        ({"outputs": np.array([3], np.int32)}, 'input "outputs" holds 3 to 3'),
        ({"runs": np.array([[2, 0, 3, 0, 1]], np.int32)}, "run 0 is of slot 2"),
        ({"runs": np.array([[0, 0, 3, 62, 1]], np.int32)}, "covers index 62 to 64"),
        ({"runs": np.array([[0, 1, 3, 0, 1]], np.int32)}, "not consecutive columns"),
        (
            {"runs": np.array([[0, 0, 2, 0, 1]], np.int32)},
            'input "tokens" has 3 rows, which is no n with n = 2',
        ),
        ({"runs": np.array([[0, 0, 3, 0, 2]], np.int32)}, "drawn runs (role 0) come before"),
        ({"runs": np.array([[0, 0, 1, 0, 1], [1, 1, 2, 0, 0]], np.int32)}, "drawn runs (role 0)"),
        ({"runs": np.array([[0, 0, 1, 0, 1], [0, 1, 2, 1, 1]], np.int32)}, "one run a pass"),
    ],
)
def test_wrong_inputs_are_refused_by_name(change, text):
    with make() as ex:
        with pytest.raises(ProgramError, match=re.escape(text)):
            ex.run({**one_pass((0, 3, 0, 1)), **change})
        assert np.isfinite(ex.run(one_pass((0, 3, 0, 1)))["logits"]).all()


def test_a_missing_input_is_refused_by_name():
    inputs = one_pass((0, 3, 0, 1))
    del inputs["outputs"]
    with make() as ex, pytest.raises(ProgramError, match='reads input "outputs"'):
        ex.run(inputs)


def test_more_columns_than_the_executor_was_made_for_are_refused():
    with make(maxima={"n": 8}) as ex, pytest.raises(ProgramError, match="made for 8"):
        ex.run(one_pass((0, 9, 0, 1)))


def test_an_unknown_output_is_refused_by_name():
    with make() as ex, pytest.raises(ProgramError, match="'hidden' is not among"):
        ex.run(one_pass((0, 3, 0, 1)), ("hidden",))


def test_close_stops_every_thread_and_running_afterwards_is_refused():
    gc.collect()  # executors that other tests have forgotten
    before = threads()
    ex = make(threads=5)
    ex.run(one_pass((0, 3, 0, 1)))
    assert threads() == before + 4
    ex.close()
    ex.close()
    assert no_more_than(before)
    with pytest.raises(RuntimeError, match="closed"):
        ex.run(one_pass((0, 3, 0, 1)))


def test_an_executor_that_is_forgotten_stops_its_threads():
    gc.collect()  # executors that other tests have forgotten
    before = threads()
    make(threads=4)
    assert no_more_than(before)


def _run_in_child(ex, queue):
    try:
        ex.run(one_pass((0, 3, 0, 1)))
        queue.put("ran")
    except RuntimeError as error:
        queue.put(str(error))
    ex.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_process_is_told_so_instead_of_hanging():
    context = multiprocessing.get_context("fork")
    with make() as ex:
        queue = context.Queue()
        child = context.Process(target=_run_in_child, args=(ex, queue))
        child.start()
        said = queue.get(timeout=60)
        child.join(timeout=60)
        assert child.exitcode == 0
        assert said == (
            f"golem: thread pool started in process {os.getpid()} used in process {child.pid} "
            "(forked after start); start the engine in gunicorn's post_worker_init"
        )
        ex.run(one_pass((0, 3, 0, 1)))


def test_passes_from_several_python_threads_take_turns():
    with make(slots=4) as ex:
        alone = [ex.run(one_pass((s, 20, 0, 1)))["logits"].copy() for s in range(4)]
        wrong = []

        def work(slot):
            for _ in range(20):
                with lock:  # results are valid until the next run: look at them in between
                    made = ex.run(one_pass((slot, 20, 0, 1)))["logits"].copy()
                if not np.array_equal(made, alone[slot]):
                    wrong.append(slot)

        lock = threading.Lock()
        workers = [threading.Thread(target=work, args=(s,)) for s in range(4)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        assert not wrong


def test_a_stateless_pass_can_be_cancelled_and_the_executor_runs_on():
    p, w = Builder("long"), Maker("F32")
    h = p.input("x", (p.axis("n", 64), 256))
    matrix = w.matrix(256, 256)
    for _ in range(300):
        h = p.rms_norm(p.linear(h, matrix), None, 1e-6)
    p.output("y", h)
    given = {"x": np.ones((64, 256), np.float32)}
    with CpuExecutor(p.build(), threads=2) as ex:
        whole = ex.run(given, ("y",))["y"].copy()
        stop = threading.Event()

        def insist():
            while not stop.is_set():
                ex.cancel()

        insisting = threading.Thread(target=insist)
        insisting.start()
        with pytest.raises(PassCancelled, match="pass of long"):
            for _ in range(1000):
                ex.run(given, ("y",))
        stop.set()
        insisting.join()
        np.testing.assert_array_equal(ex.run(given, ("y",))["y"], whole)


def test_a_pass_that_writes_states_is_not_cancelled():
    with make() as ex:
        ex.cancel()
        assert np.isfinite(ex.run(one_pass((0, 3, 0, 1)))["logits"]).all()


def test_runs_must_cover_the_columns_even_where_no_input_depends_on_them():
    p = Builder("bare")
    n = p.axis("n", 8)
    q, k, v = (p.input(s, (n, 1, 16)) for s in "qkv")
    p.output("y", p.attend(q, k, v, p.ring("kv", 1, 16), scale=1.0))
    three = np.zeros((3, 1, 16), np.float32)
    runs = np.array([[0, 0, 2, 0, 1]], np.int32)
    with (
        CpuExecutor(p.build(), context=64, threads=2) as ex,
        pytest.raises(ProgramError, match='input "q" has 3 rows, which is no n with n = 2'),
    ):
        ex.run({"q": three, "k": three, "v": three, "runs": runs}, ("y",))


def test_features_name_the_best_set_and_golem_cpu_lowers_it(monkeypatch):
    available = features()["available"]
    assert available[0] == "portable" and features()["set"] == available[-1]
    monkeypatch.setenv("GOLEM_CPU", "portable")
    assert features()["set"] == "portable"
    with make() as ex:
        assert ex.isa == "portable"
    monkeypatch.setenv("GOLEM_CPU", "sse9")
    with pytest.raises(ValueError, match=r"GOLEM_CPU=sse9: this processor and build have portable"):
        make()


def test_golem_plan_show_prints_the_records(monkeypatch, capfd):
    monkeypatch.setenv("GOLEM_PLAN", "show")
    with make() as ex:
        ex.run(one_pass((0, 3, 0, 1)))
    shown = capfd.readouterr().err
    assert "linear" in shown and "MiB" in shown and "barriers" in shown
    monkeypatch.setenv("GOLEM_PLAN", "fast")
    with pytest.raises(ValueError, match="GOLEM_PLAN=fast"):
        make()


def test_progress_rises_to_one():
    seen = []
    make(progress=seen.append).close()
    assert seen == sorted(seen) and seen[-1] == 1.0


def test_a_weight_is_repacked_once_for_two_programs():
    program = decoder()
    with make(program) as first:
        held = first.weights.nbytes
        with make(program, weights=first.weights) as second:
            assert second.weights.nbytes == held
            runs = one_pass((0, 7, 0, 1))
            np.testing.assert_array_equal(
                first.run(runs)["logits"].copy(), second.run(runs)["logits"]
            )


def test_pages_of_a_mapped_file_leave_memory_once_repacked(tmp_path: Path):
    """The map still shows the file's bytes: its pages were given back, not cleared."""
    kind, shape = by_name("F32"), (512, 1024)
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    path = tmp_path / "weights"
    path.write_bytes(data.tobytes())
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    blocks = np.frombuffer(mapped, np.uint8).reshape(512, 4096)
    p = Builder("one")
    x = p.input("x", (p.axis("n", 4), 1024))
    p.output("y", p.linear(x, Weight("w", shape, kind, blocks)))
    with CpuExecutor(p.build(), threads=2) as ex:
        given = np.ones((1, 1024), np.float32)
        made = ex.run({"x": given}, ("y",))["y"]
        np.testing.assert_allclose(made[0], data.sum(1), atol=1e-3)
        np.testing.assert_array_equal(blocks, data.view(np.uint8))


def test_weights_in_ordinary_memory_are_left_alone():
    w = Maker("Q4_0").matrix(1024, 1024)
    before = w.data.copy()
    p = Builder("one")
    p.output("y", p.linear(p.input("x", (p.axis("n", 4), 1024)), w))
    CpuExecutor(p.build(), threads=2).close()
    np.testing.assert_array_equal(w.data, before)


def test_cores_are_those_this_process_may_use():
    assert 1 <= physical_cores() <= usable_cpus() == len(os.sched_getaffinity(0))


def test_quotas_of_control_groups_are_read_in_both_versions(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "cpu.max").write_text("150000 100000\n")
    assert quota(tmp_path, ["0::/a"]) == 1.5
    (tmp_path / "a" / "cpu.max").write_text("max 100000\n")
    assert quota(tmp_path, ["0::/a"]) == float("inf")
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("300000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert quota(tmp_path, ["3:cpuset:/", "2:cpu,cpuacct:/x"]) == 3
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1")
    assert quota(tmp_path, ["2:cpu,cpuacct:/x"]) == float("inf")
