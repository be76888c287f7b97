"""The block of a file that guesses the token after the next one, opened beside its model.

It runs in a program of its own, on the threads, the weights and the states of the model's executor:
what it attends to is written by the model's passes, and so is saved, copied and rewound with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from golem_core.graph.program import Program
from golem_core.model.decoder import Decoder
from golem_core.model.errors import ModelError
from golem_core.reference import ReferenceExecutor

OUTPUTS = ("logits", "hidden")
KINDS = ("auto", "ngram", "mtp", "off")  # what may guess; auto: whatever there is


def predicting(decoder: Decoder, draft: str) -> bool:
    """Whether drafts of that kind want the file's prediction block, and it has one.

    Raises ModelError where it is asked for by name and not there.
    """
    if draft not in KINDS:
        raise ModelError(f"draft {draft!r}: it is one of {', '.join(KINDS)}")
    if draft == "mtp" and not decoder.predicts:
        raise ModelError(
            f"{decoder.hyper.file}: {_absent(decoder)}; -draft auto and ngram need it not"
        )
    return draft in ("auto", "mtp") and decoder.predicts


def _absent(decoder: Decoder) -> str:
    if not decoder.prediction_blocks:
        return (
            "-draft mtp needs a prediction block, and this file has none "
            f"({decoder.hyper.key('nextn_predict_layers')} is absent or 0)"
        )
    return (
        f"-draft mtp needs the tensor blk.{decoder.blocks}.nextn.eh_proj.weight of the prediction "
        f"block, and golem to know how {decoder.architecture} uses it"
    )


def open_prediction(
    executor: Any, program: Program, progress: Callable[[float], None] | None = None
) -> Any:
    """An executor of a prediction program, beside the model's own."""
    if isinstance(executor, ReferenceExecutor):
        return ReferenceExecutor(program, states=executor.states)
    from golem_core.cpu import CpuExecutor  # compiled; a checkout that only reads files lacks it

    return CpuExecutor(
        program,
        beside=executor,
        weights=executor.weights,
        states=executor.states,
        wanted=(OUTPUTS,),
        progress=progress,
    )
