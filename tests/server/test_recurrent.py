"""A delta net with a prediction block through a running server: what it says of itself."""

import pytest

from tests.plugins import tiny, tiny_next
from tests.server.conftest import Running


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recurrent")
    plain = tiny.write(folder / "plain.gguf", "qwen35-mtp")
    running = Running(
        "golem-server",
        GOLEM_MODEL=str(tiny_next.of_the_last_token(plain, folder / "model.gguf")),
        GOLEM_CONTEXT="2048",
        GOLEM_PARALLEL="4",
        GOLEM_THREADS="2",
        GOLEM_DRAFT="mtp",
        GOLEM_CHECKPOINT_MEMORY="12MiB",
    )
    running.ready()
    yield running
    running.stop()


def test_fewer_copies_of_the_state_than_asked_for_are_told_at_the_start(server):
    """Four slots, and 1.6 MiB a copy: 12 MiB hold one each."""
    line = server.wait_for_line("checkpoints: ").string
    assert "checkpoints: 1 a slot, 1.6 MiB each, of 3 asked for: memory is short" in line
    assert "-checkpoint-memory allows more" in line


def test_guesses_are_told_with_an_answer_and_counted(server):
    server.wait_for_line("drafts: by the file's prediction block")
    body = {"prompt": "a b c", "n_predict": 40, "temperature": 0}
    timings = server.post("/completion", body)[1]["timings"]
    assert timings["predicted_n"] == 40
    assert 0 < timings["draft_n_accepted"] == timings["draft_n"]
    text = server.request("GET", "/metrics")[2].decode()
    assert f"spec_decode_num_accepted_tokens_total {timings['draft_n']}.0\n" in text
