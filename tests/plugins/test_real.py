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


def parting(model, ids, answer):
    """The step at which greedy drawing leaves ``answer``, None where it never does."""
    ex, fed = model.executor, np.array(ids, np.int32)
    for step, wanted in enumerate(answer):
        role = 1 if step == 0 else 0
        index = 0 if step == 0 else len(ids) + step - 1
        inputs = {
            "runs": np.array([[0, 0, len(fed), index, role]], np.int32),
            "tokens": fed,
            "outputs": np.array([len(fed) - 1], np.int32),
        }
        if int(ex.run(inputs)["logits"][0].argmax()) != wanted:
            return step
        fed = np.array([wanted], np.int32)
    return None


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_greedy_text_parts_from_llama_cpp_only_at_near_ties(name):
    model = open_decoder(MODELS[name](), context=1024)
    try:
        for case in cases(name):
            ids = model.tokenizer.encode(case["prompt"], add_special=True)
            assert len(ids) == case["n_prompt"]
            step = parting(model, ids, case["tokens"])
            assert step is None or case["gap"][step] < NEAR_TIE, case["prompt"]
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
