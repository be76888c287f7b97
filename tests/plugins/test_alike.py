"""Models of few bits with caches of few bits: all that parts them from the truth is rounding.

Weights of one or two bits and keys and values of four take a random mixture of experts up to 40 %
from the reference executor. Most of it is the cache alone: four bits are 8 % off a random value.
The rest grows in it, too: of values that anything moved by a little, some fall on the next step,
so that 1 % becomes 5 %, and then other experts are chosen. So here the reference is given the same
roundings and the executor's own experts, or is led along all of its values, op by op.
"""

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from golem_core.cpu import CpuExecutor, features
from golem_core.reference import ReferenceExecutor
from tests.plugins import tiny
from tests.rounding import cache_rounded, columns_rounded, led, median_distance, prompt_rule

LENGTH = 40
CASES = (
    ("gemma4-moe", "Q1_0", "q4_0"),
    ("gemma4-moe", "TQ1_0", "q4_0"),
    ("gemma4-moe", "TQ2_0", "q8_0"),
    ("gemma4-moe", "Q2_0", "q4_0"),
    ("gemma4-moe", "PQ2_0", "q4_0"),
    ("gemma4-moe", "PTQ1_0", "q8_0"),
    ("gemma4-moe", "Q2_K", "q4_0"),
    ("gemma4-dense", "Q2_K", "q4_0"),
    ("gemma4-dense", "Q1_0", "q8_0"),
    ("gemma4-e2b", "Q2_0", "q4_0"),
    ("qwen35", "Q2_K", "q4_0"),
    ("qwen35", "TQ2_0", "q8_0"),
    ("qwen35moe", "Q2_K", "q4_0"),
    ("qwen35moe", "Q1_0", "q8_0"),
)
every_case = pytest.mark.parametrize(("name", "type", "cache"), CASES)
every_role = pytest.mark.parametrize("role", [1, 0], ids=["read", "drawn"])

# Of one op on the same operands, relative rms: sums in f32, and the kernels' own roundings (prompts
# have 15 bits of a sum of 32 products, attention of prompts BF16 probabilities, see
# tests/core/cpu). A product's columns are rounded by 5e-3 to 1e-2.
CLOSE = {"linear": 8e-4, "linear_by_expert": 8e-4, "attend": 6e-3}
ELSE = 1e-6


class Pair:
    """Both executors of a model in passes of one role, some values of it outputs too."""

    def __init__(self, model, cache, role, values):
        program = model.program(64, 64)
        named = {f"value {v.id}": v for node in program.nodes for v in node.outputs if values(node)}
        self.program = replace(program, outputs=program.outputs | named)
        self.wanted = ("logits", *named)
        self.cache, self.role = cache, role
        ids = np.random.default_rng(0).integers(0, model.vocabulary, LENGTH)
        step = LENGTH if role else 1
        self.parts = [(0, at, ids[at : at + step], role) for at in range(0, LENGTH, step)]
        options = {"slots": 1, "context": 64, "maxima": {"n": 64, "m": 64}}
        with CpuExecutor(self.program, threads=2, cache=(cache, cache), **options) as fast:
            self.made = [tiny.run(fast, part, wanted=self.wanted) for part in self.parts]
        self.reference = lambda: ReferenceExecutor(self.program, **options)
        self.rule = prompt_rule(features()["set"])

    @property
    def logits(self):
        return np.concatenate([made["logits"] for made in self.made])

    def truth(self, columns, note=None):
        """The reference's logits with this cache, led along the values; columns: rounded too."""
        ex, rows = self.reference(), []
        for part, made in zip(self.parts, self.made, strict=True):
            values = {self.program.outputs[k].id: made[k] for k in self.wanted[1:]}
            with ExitStack() as given:
                if columns:
                    given.enter_context(columns_rounded(self.rule, self.wanted))
                given.enter_context(cache_rounded(self.cache))
                given.enter_context(led(values, note))
                rows.append(tiny.run(ex, part)["logits"])
        return np.concatenate(rows)


@every_role
@every_case
def test_each_op_makes_of_the_same_operands_what_the_reference_makes(
    name, type, cache, role, tiny_model
):
    rows, chosen = defaultdict(list), []

    def note(node, value, made, given):
        if given.dtype == np.int32:
            chosen.append((made, given))
            return
        made, given = (x.reshape(len(x), -1).astype(np.float64) for x in (made, given))
        size = np.maximum((made**2).mean(-1), 1e-30)
        rows[node.op, value.name] += list(np.sqrt(((given - made) ** 2).mean(-1) / size))

    pair = Pair(tiny.decoder(tiny_model(name, type)), cache, role, lambda node: True)
    pair.truth(True, note)
    assert len(rows) > 50 and all(len(each) == LENGTH for each in rows.values())
    far = {
        key: found
        for key, each in rows.items()
        # a tie falls one way or the other now and then: not all rows
        if (found := np.quantile(each, 0.8)) > CLOSE.get(key[0], ELSE)
    }
    assert not far
    assert bool(chosen) == ("moe" in name)
    for made, given in chosen:
        np.testing.assert_array_equal(given, made)


@every_role
@every_case
def test_with_the_same_experts_a_model_is_as_far_off_as_rounding_takes_it(
    name, type, cache, role, tiny_model
):
    model = tiny.decoder(tiny_model(name, type))
    pair = Pair(model, cache, role, lambda node: node.op == "route")
    truth = pair.truth(columns=False)
    found = median_distance(pair.logits, truth)
    expected = median_distance(pair.truth(columns=True), truth)
    print(f"{found:.4f} of {expected:.4f}")
    assert expected / 1.3 < found < 1.3 * expected
