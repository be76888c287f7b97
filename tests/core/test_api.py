"""golem from Python: sessions, generations, and the example of the documentation."""

import gc
import runpy
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import golem_core
from golem_core.api import CannotEmbed, Session, SlotBusy
from golem_core.sample import ParamError
from golem_core.schedule import ContextExceeded, EngineClosed
from tests.core.schedule.fakes import EOG, FakeModel, Gate
from tests.paths import smollm2

ROOT = Path(__file__).parents[2]


def endless(**fields):
    model = FakeModel(**fields)
    model.executor.script = lambda history: ord("z")
    return model


def test_importing_golem_core_imports_nothing_heavy_and_starts_no_thread():
    code = (
        "import sys, threading, golem_core\n"
        "assert 'numpy' not in sys.modules and threading.active_count() == 1\n"
        "golem_core.open\n"
        "assert threading.active_count() == 1"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_steps_join_to_the_result_and_count_up():
    model = FakeModel()
    model.answers({"^hi": "Paris"})
    with Session(model) as session:
        answer = session.generate("hi", temperature=0)
        steps = list(answer)
        assert "".join(s.piece for s in steps) == answer.text == answer.result.text == "Paris"
        assert [s.count for s in steps] == [1, 2, 3, 4, 5, 6]
        assert [s.token for s in steps] == [*b"Paris", EOG]
        assert [s.end for s in steps] == [False] * 5 + [True]
        assert steps[0].logprob is None and steps[0].top == ()
        assert answer.result.finish_reason == "stop"
        assert list(answer) == []
    assert model.closed


def test_the_result_can_be_had_without_reading_the_steps():
    with Session(endless()) as session:
        assert session.generate("a", max_tokens=3, temperature=0).result.text == "zzz"


def test_ids_are_used_as_they_are_and_text_gets_the_begin_token():
    model = endless()
    with Session(model) as session:
        session.generate([1, 2, 3], max_tokens=1).result  # noqa: B018
        session.generate("ab", max_tokens=1, cache_prompt=False).result  # noqa: B018
    assert [bytes(seen.tokens) for seen in model.executor.seen] == [b"\1\2\3", b"^ab"]


def test_a_conversation_is_written_by_the_models_template_with_one_begin_token():
    model = FakeModel()
    model.answers({"^[user:hi][": "Yes.", "^(enable_thinking=True)[user:hi][": "Hm."})
    with Session(model) as session:
        messages = [{"role": "user", "content": "hi"}]
        assert session.chat(messages, temperature=0).text == "Yes."
        thinking = {"enable_thinking": True}
        assert session.chat(messages, template_arguments=thinking, temperature=0).text == "Hm."


def test_another_last_message_is_all_that_is_read_of_a_memory_that_cannot_be_rewound():
    sheet = {"role": "system", "content": "a villager " * 60}
    with Session(FakeModel(recurrent=True, context=2048)) as session:
        for place, said in enumerate(["who?", "a word", "news"]):
            asked = [sheet, {"role": "user", "content": said}]
            result = session.chat(asked, max_tokens=1).result
            assert result.fed_tokens == (len(f"{said}][") if place else result.prompt_tokens)


def test_log_probabilities_come_when_asked_for():
    with Session(FakeModel()) as session:
        step = next(session.generate("a", temperature=0, logprobs=4))
        assert len(step.top) == 4
        assert step.top[0] == (step.token, step.logprob)
        assert step.logprob < 0


def test_closing_stops_the_drawing_within_a_pass():
    model = endless()
    gate = Gate(model.executor)
    with Session(model) as session:
        answer = session.generate("a", max_tokens=-1)
        gate.step()
        assert next(answer).piece == "z"
        gate.wait_for_pass()
        answer.close()
        answer.close()
        gate.open()
        assert answer.result.finish_reason == "cancelled"
        assert len(model.executor.seen) == 2
        assert list(answer) == []


def test_leaving_a_with_block_or_dropping_the_answer_stops_it_too():
    model = endless(slots=2, context=4096)
    with Session(model) as session:
        with session.generate("a", max_tokens=-1) as answer:
            next(answer)
        assert answer.result.finish_reason == "cancelled"
        dropped = session.generate("b", max_tokens=-1)
        job = dropped._job
        next(dropped)
        del dropped
        gc.collect()
        assert job.wait(20).finish_reason == "cancelled"


def test_several_threads_draw_from_one_session():
    with Session(FakeModel(slots=3)) as session:
        prompts = [f"thread {i}" for i in range(6)]
        alone = [session.generate(p, seed=i, max_tokens=20).text for i, p in enumerate(prompts)]
        texts = [""] * 6

        def draw(i):
            texts[i] = session.generate(prompts[i], seed=i, max_tokens=20).text

        threads = [threading.Thread(target=draw, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert texts == alone


def test_the_files_own_settings_hold_unless_overridden():
    model = FakeModel(sampling={"temp": 0.0})
    with Session(model) as session:
        params = session.generate("a", max_tokens=1)._job.request.params
        assert (params.temperature, params.top_k) == (0, 40)
        params = session.generate("a", max_tokens=1, temperature=2, top_k=3)._job.request.params
        assert (params.temperature, params.top_k) == (2, 3)


def test_what_cannot_be_served_is_refused_at_the_call():
    with Session(FakeModel(context=64)) as session:
        with pytest.raises(TypeError, match="did you mean 'temperature'"):
            session.generate("a", temprature=1)
        with pytest.raises(TypeError, match="there are seed, temperature"):
            session.generate("a", qqq=1)
        with pytest.raises(ParamError, match="repeat_last_n"):
            session.generate("a", repeat_last_n=-1)
        with pytest.raises(ContextExceeded):
            session.generate("a" * 64)
        with pytest.raises(CannotEmbed, match="gives no vectors"):
            session.embed(["text"])
    with pytest.raises(EngineClosed):
        session.generate("a")


def test_tokens_and_text_come_back():
    with Session(FakeModel()) as session:
        assert session.tokenize("né") == [110, 195, 169]
        assert session.tokenize("a", add_special=True) == [ord("^"), 97]
        assert session.detokenize([110, 195, 169, EOG]) == "né"
        assert session.detokenize([97, EOG], special=True) == "a<end>"
        assert session.context == 256


def test_a_model_that_cannot_be_scheduled_is_closed():
    model = FakeModel(slots=8, pass_width=4)
    with pytest.raises(ValueError, match="-pass-width"):
        Session(model)
    assert model.closed


@pytest.mark.real
def test_the_example_runs(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["python_api.py", str(smollm2())])
    runpy.run_path(str(ROOT / "examples" / "python_api.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert "Paris" in out and "Rome" in out
    assert "came from the cache" in out
    assert "stopped after" in out and out.rstrip().endswith("cancelled")


def test_a_path_that_is_no_model_is_refused_with_its_name(tmp_path):
    path = tmp_path / "nothing.gguf"
    path.write_bytes(b"no model at all")
    with pytest.raises(ValueError, match=r"nothing\.gguf"):
        golem_core.open(path)


def test_a_slot_tells_what_it_holds_and_forgets_it():
    with Session(endless(slots=2)) as session:
        result = session.generate("hi", max_tokens=3).result
        slot = session.slot(result.slot)
        assert slot.state.n_tokens == 3 + 2  # ^hi and what was fed of the answer
        assert slot.erase() == 5
        assert (slot.state.n_tokens, slot.erase()) == (0, 0)
        with pytest.raises(IndexError, match="there is no slot 2; there are 2"):
            session.slot(2)


def test_a_busy_slot_is_not_erased_but_may_be_reset():
    model = endless()
    gate = Gate(model.executor)
    with Session(model) as session:
        answer = session.generate("hi", max_tokens=-1)
        gate.step()
        gate.wait_for_pass()
        with pytest.raises(SlotBusy, match="slot 0 is drawing an answer"):
            session.slot(0).erase()
        gate.open()
        assert session.slot(0).reset() >= 3
        assert answer.result.finish_reason == "cancelled"
        assert session.slot(0).state.n_tokens == 0
