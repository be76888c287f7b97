"""Real models: where golem's greedy text parts from llama.cpp's, the two best were nearly equal."""

import gzip
import json

import numpy as np
import pytest

from golem_core.model import open_decoder
from tests.paths import data, gemma3_270m, smollm2

MODELS = {"smollm2-q4_1": smollm2, "gemma3-270m-q4_k_m": gemma3_270m}
NEAR_TIE = 0.5  # natural log between the two best tokens


def cases(name):
    return json.loads(gzip.decompress(data("models/greedy_real.json.gz").read_bytes()))[name]


def partings(model, prompts, answers):
    """The step at which greedy drawing leaves each answer; every conversation has a slot."""
    steps, fed = {}, [np.array(ids, np.int32) for ids in prompts]
    index, alive = [0] * len(prompts), list(range(len(prompts)))
    for step in range(max(map(len, answers))):
        alive = [s for s in alive if step < len(answers[s])]
        if not alive:
            break
        counts = [len(fed[s]) for s in alive]
        firsts = np.cumsum([0, *counts])
        role = 1 if step == 0 else 0
        runs = [[s, firsts[i], counts[i], index[s], role] for i, s in enumerate(alive)]
        inputs = {
            "runs": np.array(runs, np.int32),
            "tokens": np.concatenate([fed[s] for s in alive]),
            "outputs": firsts[1:].astype(np.int32) - 1,
        }
        best = model.executor.run(inputs)["logits"].argmax(-1)
        for s, token in zip(list(alive), best.tolist(), strict=True):
            wanted = answers[s][step]
            if token != wanted:
                steps[s] = step
                alive.remove(s)
            index[s] += len(fed[s])
            fed[s] = np.array([wanted], np.int32)
    return steps


@pytest.mark.real
@pytest.mark.parametrize("name", MODELS)
def test_greedy_text_parts_from_llama_cpp_only_at_near_ties(name):
    """All conversations draw together; each is drawn to its end or to where it parts."""
    known = cases(name)
    model = open_decoder(MODELS[name](), context=128 * len(known), parallel=len(known))
    try:
        prompts = [model.tokenizer.encode(c["prompt"], add_special=True) for c in known]
        assert [len(ids) for ids in prompts] == [c["n_prompt"] for c in known]
        parted = partings(model, prompts, [c["tokens"] for c in known])
        for at, step in parted.items():
            assert known[at]["gap"][step] < NEAR_TIE, (known[at]["prompt"], step)
        print(f"{name}: {len(known) - len(parted)} of {len(known)} answers equal to the end")
    finally:
        model.close()


@pytest.mark.real
@pytest.mark.parametrize("name", MODELS)
def test_the_reference_executor_prefers_llama_cpps_tokens_or_a_near_tie(name):
    """Prompt and recorded answer in one pass: what would be drawn after each prefix of them."""
    model = open_decoder(MODELS[name](), context=512, executor="reference")
    try:
        for case in cases(name)[:4]:
            ids = model.tokenizer.encode(case["prompt"], add_special=True)
            answer = case["tokens"]
            fed = np.array([*ids, *answer[:-1]], np.int32)
            inputs = {
                "runs": np.array([[0, 0, len(fed), 0, 1]], np.int32),
                "tokens": fed,
                "outputs": np.arange(len(ids) - 1, len(fed), dtype=np.int32),
            }
            best = model.executor.run(inputs)["logits"].argmax(-1)
            parted = np.flatnonzero(best != answer)
            assert len(best) == len(answer)
            assert all(case["gap"][step] < NEAR_TIE for step in parted), case["prompt"]
    finally:
        model.close()
