"""The chain draws what llama-server drew, token for token.

``llama_server_draws.npz``: 35 requests to llama-server b10434 on a tiny model (V = 320); each
drawn token with the log-probabilities of the raw logits it was drawn from.
"""

import gzip
import json
import math

import numpy as np
import pytest

from golem_core.sample import Sampler, SamplerParams
from golem_core.sample.dry import pack_heads
from tests.paths import data

V = 320
BREAKERS = pack_heads({token: [()] for token in (10, 58, 34, 42)}, V)


def load():
    with np.load(data("sample/llama_server_draws.npz")) as file:
        meta = json.loads(file["meta"].tobytes())
        logprobs = file["logprobs"]
    at = 0
    for case in meta["cases"]:
        n = len(case["tokens"])
        yield case, logprobs[at : at + n]
        at += n


CASES = list(load())


@pytest.mark.parametrize(
    ("case", "rows"), CASES, ids=[json.dumps(case["params"]) for case, _ in CASES]
)
def test_every_token_is_the_one_llama_server_drew(case, rows):
    known = {k: v for k, v in case["resolved"].items() if k in SamplerParams.__annotations__}
    params = SamplerParams.resolve({}, case["params"])
    assert {name: getattr(params, name) for name in known} == known
    sampler = Sampler(params, V, suppress=case["banned"], heads=BREAKERS, prompt=case["prompt"])
    assert [sampler.sample(row) for row in rows] == case["tokens"]


def penalty_cases():
    with gzip.open(data("sample/llama_server_penalties.json.gz")) as file:
        golden = json.load(file)
    return [(golden, case) for case in golden["cases"]]


@pytest.mark.parametrize(
    ("golden", "case"), penalty_cases(), ids=lambda x: json.dumps(x.get("params", ""))
)
def test_penalties_leave_the_probabilities_llama_server_reports(golden, case):
    base = np.full(V, -math.inf, np.float32)
    for token, value in golden["base_logprobs"].items():
        base[int(token)] = value - golden["const"]
    params = SamplerParams.resolve({}, case["params"] | {"samplers": ["penalties"]})
    sampler = Sampler(params, V, prompt=golden["prompt"], n_probs=V, post_sampling=True)
    sampler.sample(base)
    mine = dict(sampler.probs().top)
    for token, probability in case["probs"].items():
        assert mine.get(int(token), 0.0) == pytest.approx(probability, rel=2e-4, abs=1e-7)
