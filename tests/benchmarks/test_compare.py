"""The comparison with peers: what it sends, what it reads of them, what it keeps and prints."""

import argparse
import asyncio
import json
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.clients import ClientError, at_depth, prompt, round_of, words_of
from benchmarks.compare import chosen, main
from benchmarks.lines import LINES, PARTS, Turn, measure
from benchmarks.programs import Deep, Golem, batched_rows
from benchmarks.tables import Samples, summary, table
from golem_core.formats.writer import write_gguf


def test_rates_of_several_conversations_are_read_from_the_peers_table():
    text = """main: n_kv_max = 600
|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|    64 |      8 |    1 |     72 |    0.299 |   214.05 |    1.253 |     6.39 |    1.552 |    46.39 |
|    64 |      8 |    2 |    144 |    0.180 |   711.06 |    0.565 |    28.34 |    0.745 |   193.37 |

llama_print_timings:        load time =     107.60 ms"""
    rows = list(batched_rows(text))
    assert [(row["B"], row["S_PP t/s"], row["S_TG t/s"]) for row in rows] == [
        (1, 214.05, 6.39), (2, 711.06, 28.34),
    ]  # fmt: skip


def test_clients_send_prompts_of_ordinary_tokens_as_long_as_they_say(tmp_path):
    path = tmp_path / "m.gguf"
    types = np.array([3, 1, 1, 6, 1, 5], np.int32)  # control, three normal, a byte, unused
    keys = {"general.architecture": "llama", "tokenizer.ggml.tokens": list("abcdef")}
    write_gguf(path, keys | {"tokenizer.ggml.token_type": types}, [])
    words = words_of(path)
    assert words == [1, 2, 4]
    made = prompt(words, 200, seed=1)
    assert len(made) == 200
    assert set(made) == {1, 2, 4}
    assert made == prompt(words, 200, seed=1) != prompt(words, 200, seed=2)


class Clock:
    """A second later each time it is looked at."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        self.now += 1
        return self.now


class Server:
    """Answers completions at once, and metrics; counts passes as if all drew together."""

    def __init__(self, slot: int):
        self.slot, self.passes = slot, 0
        self.prompts, self.read, self.drawn = [], [], []

    async def __call__(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if head.startswith("GET /metrics"):
            self.passes += 10
            writer.write(
                b"HTTP/1.1 200 OK\r\n\r\nllamacpp:n_decode_total %d\n"
                b"llamacpp:n_busy_slots_per_decode 3\n" % self.passes
            )
        else:
            length = int(re.search(r"Content-Length: (\d+)", head)[1])
            await self._complete(json.loads(await reader.readexactly(length)), writer)
        writer.close()

    async def _complete(self, asked, writer):
        text, drawn = asked["prompt"], asked["max_tokens"]
        if len(text) + drawn > self.slot:
            writer.write(b'HTTP/1.1 400 Bad Request\r\n\r\n{"error": "too long"}')
            return
        held = [len(p) for p in self.prompts if text[: len(p)] == p]
        self.prompts.append(text)
        self.drawn.append(drawn)
        timings = {"prompt_n": len(text) - max(held, default=0), "predicted_n": drawn}
        self.read.append(timings["prompt_n"])
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for frame in [{"choices": []}] * drawn + [{"timings": timings}]:
            writer.write(b"data: " + json.dumps(frame).encode() + b"\n\n")
            await writer.drain()
            await asyncio.sleep(0)


@pytest.fixture
def served(monkeypatch):
    """Runs a function with the port of a Server; asyncio.run goes on in the Server's loop."""

    def run(server, function):
        async def whole():
            listening = await asyncio.start_server(server, "127.0.0.1", 0)
            port = listening.sockets[0].getsockname()[1]
            loop = asyncio.get_running_loop()
            with monkeypatch.context() as patch:
                patch.setattr(
                    "benchmarks.clients.asyncio.run",
                    lambda what: asyncio.run_coroutine_threadsafe(what, loop).result(),
                )
                async with listening:
                    return await asyncio.to_thread(function, port)

        return asyncio.new_event_loop().run_until_complete(whole())

    return run


def test_a_round_reads_new_prompts_and_draws_from_those_it_holds(served):
    server = Server(1024)
    seen = served(server, lambda p: round_of(p, [5, 6, 7], read=20, drawn=9, seeds=[4, 5, 6]))
    first, again = server.prompts[:3], server.prompts[3:]
    assert sorted(first) == sorted(again) == sorted(prompt([5, 6, 7], 20, n) for n in (4, 5, 6))
    assert set(server.drawn) == {9}
    assert seen.shared == 3
    assert min(seen.total, seen.reading, seen.drawing) > 0


def test_what_is_read_at_a_depth_is_only_what_comes_behind_it(served, monkeypatch):
    server = Server(1024)
    monkeypatch.setattr("benchmarks.clients.time.perf_counter", Clock())
    reading, drawing = served(
        server, lambda p: at_depth(p, [5, 6, 7], 100, read=10, drawn=4, repeats=2)
    )
    assert [len(text) for text in server.prompts] == [100, 110, 120]
    begin, one, two = server.prompts
    assert (one[:100], two[:110]) == (begin, one)
    assert server.read == [100, 10, 10]
    assert reading == [10, 10]  # of the clock one second to the first of 4 tokens, and
    assert drawing == pytest.approx([3 / 4, 3 / 4])  # four more: to the end's frame


def test_a_refusal_is_told_with_what_was_asked_and_answered(served):
    with pytest.raises(ClientError, match=r"400 Bad Request.*20 tokens and 9 more.*too long"):
        served(Server(28), lambda p: round_of(p, [5, 6], read=20, drawn=9, seeds=[0]))


class Program:
    """Says how it was asked; no rate is asked for twice."""

    name = "golem"

    def bench(self, model, prompts, draws, threads, repeats):
        return {f"pp{n}": [1.0] * repeats for n in prompts} | {f"tg{n}": [2.0] for n in draws}

    def deep(self, model, depth, drawn, threads, repeats):
        return Deep([float(depth)], [float(drawn)])

    def widths(self, model, prompt, widths, threads, repeats):
        return {width: [float(width)] for width in widths}

    def conversations(self, model, depths, counts, drawn, threads):
        return {depth: {n: [float(n + depth)] for n in counts} for depth in depths}


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["pp512"], {"pp512": [1.0, 1.0, 1.0]}),
        (["tg64@4096"], {"tg64@4096": [64.0]}),
        (["pp512/16", "pp512/512"], {"pp512/16": [16.0], "pp512/512": [512.0]}),
        (["4x tg32@448", "8x tg32@0"], {"4x tg32@448": [452.0], "8x tg32@0": [8.0]}),
    ],
)
def test_a_part_gives_the_lines_that_are_wanted(patterns, found, tmp_path):
    (tmp_path / "model").write_bytes(b"")
    wanted = frozenset(line.name for line in chosen(patterns))
    (part,) = (part for part in PARTS if wanted & {line.name for line in part.lines})
    assert measure(part, Turn(Program(), tmp_path / "model", wanted, 2, 0)) == found


def test_lines_are_chosen_by_pattern():
    assert [line.name for line in chosen(["tg64", "pp512"])] == ["pp512", "tg64"]
    assert {line.unit for line in chosen(["4 clients*"])} == {"t/s", ""}
    assert len({line.name for line in LINES}) == len(LINES)
    with pytest.raises(argparse.ArgumentTypeError, match="'fast' fits none of: pp512"):
        chosen(["fast"])


BUILDS = {"golem": "sources 1", "a": "a==1", "b": "b==2"}


def filled(**programs):
    """pp512 of one model, by program: values, or (values, steady) of several turns."""
    samples = Samples(dict(BUILDS))
    for program, turns in programs.items():
        for turn in turns if isinstance(turns[0], tuple) else [(turns, True)]:
            samples.add("m.gguf", "pp512", program, turn[1], turn[0])
    return samples


def test_ratio_is_to_the_better_peer_whichever_way_better_is():
    samples = filled(golem=[300.0, 10.0, 20.0], a=[5.0], b=[8.0])
    for program, value in (("golem", 100.0), ("a", 250.0), ("b", 300.0)):
        samples.add("m.gguf", "first token", program, True, [value])
    for program, value in (("golem", 4.0), ("a", 2.0)):
        samples.add("m.gguf", "4 clients a pass", program, True, [value])
    assert table(samples, "m.gguf").splitlines() == [
        "| line | unit | golem | a | b | ratio |",
        "|---|---|---|---|---|---|",
        "| pp512 | t/s | 20.0 | 5.0 | 8.0 | 2.50 |",
        "| 4 clients a pass |  | 4.0 | 2.0 |  |  |",
        "| first token | ms | 100 | 250 | 300 | 2.50 |",
    ]
    samples.add("n.gguf", "pp512", "golem", True, [6.0])
    samples.add("n.gguf", "pp512", "a", True, [3.0])
    assert summary(samples).splitlines() == [
        "| golem / the better peer | m | n |",
        "|---|---|---|",
        "| pp512 | 2.50 | 2.00 |",
        "| first token | 2.50 |  |",
    ]


def test_disturbed_turns_count_only_where_there_is_nothing_better():
    samples = filled(golem=[([9.0], False), ([4.0], True)], a=[([9.0], False), ([2.0], True)])
    assert table(samples, "m.gguf").splitlines()[-1] == "| pp512 | t/s | 4.0 | 2.0 | 2.00 |"
    assert samples.taken("m.gguf", "pp512", ["golem", "a"]) == 1
    samples = filled(golem=[([9.0], False)], a=[([3.0], False)])
    assert table(samples, "m.gguf").splitlines()[-1] == "| pp512 | t/s | 9.0 | 3.0 | 3.00? |"
    assert samples.taken("m.gguf", "pp512", ["golem", "a"]) == 0


def test_a_peer_that_fails_leaves_a_gap_and_has_had_its_turn():
    samples = filled(golem=[9.0], a=[3.0], b=[([], True)])
    assert table(samples, "m.gguf").splitlines()[-1] == "| pp512 | t/s | 9.0 | 3.0 |  | 3.00 |"
    assert samples.taken("m.gguf", "pp512", list(BUILDS)) == 1


def test_runs_add_to_a_file_of_the_same_builds(tmp_path, monkeypatch, capsys):
    path = tmp_path / "kept.json"
    for values in ([1.0, 2.0], [6.0]):
        samples = Samples.open(path, BUILDS)
        samples.add("m.gguf", "pp512", "golem", True, values)
        samples.add("m.gguf", "pp512", "a", True, [4.0])
        samples.save()
    row = "| pp512 | t/s | 2.0 | 4.0 | 0.50 |"
    assert table(Samples.open(path, BUILDS), "m.gguf").splitlines()[-1] == row
    monkeypatch.setattr("sys.argv", ["compare", "--json", str(path)])
    main()
    assert capsys.readouterr().out.splitlines()[-1] == row
    with pytest.raises(
        ValueError, match=r"figures of golem sources 1, and this is sources 2: name"
    ):
        Samples.open(path, {"golem": "sources 2"})
    for text in ("{", "[]", '{"programs": {}}', '{"programs": 1, "models": {}}'):
        path.write_text(text)
        with pytest.raises(ValueError, match="holds no samples of a comparison"):
            Samples.open(path, BUILDS)


def test_nobody_drafts():
    """golem would by itself; llama-server only where it is given a model to draft with."""
    server = Golem().server(Path("m.gguf"), 1, 2, 64, 2)
    assert server[server.index("-draft") + 1] == "off"
