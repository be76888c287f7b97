"""Opening a chat model: from a path to what the scheduler and the server work with."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from golem_core.cpu.cores import check_threads
from golem_core.formats.gguf import GGUF
from golem_core.graph.program import Program
from golem_core.graph.values import ProgramError
from golem_core.graph.weights import WeightError
from golem_core.model.decoder import LONGEST_CONTEXT, Decoder
from golem_core.model.describe import OfFile, name_of, refuse_other_kinds, sampling
from golem_core.model.errors import MemoryShort, ModelError
from golem_core.model.media import Limits, Marks
from golem_core.model.memory import (
    Estimate,
    estimate_beside,
    estimate_program,
    memory_limit,
    told_limit,
)
from golem_core.model.mlock import lock
from golem_core.model.outputs import drawn_from
from golem_core.model.plugins_own import plugins_own, written
from golem_core.model.prediction import open_prediction, predicting
from golem_core.model.projector import CACHE_BYTES, Projector, open_projector
from golem_core.model.rope import KINDS
from golem_core.model.tensors import Tensors
from golem_core.plugins import Plugins, UnknownArchitecture, load_plugins
from golem_core.reference import ReferenceExecutor
from golem_core.state import StateError
from golem_core.state.declare import Ring
from golem_core.state.kinds import CACHE_TYPES
from golem_core.text.calls import CallFormat
from golem_core.text.template import ChatTemplate, TemplateError
from golem_core.text.tokenizer import Tokenizer, TokenizerError, load_tokenizer

PASS_WIDTH = 512
SCORED = 64  # rows a pass can score at least; a run that wants more is fed in pieces
LEAST_SLOT = 2  # positions: a prompt of one token leaves room for one of its answer
EXECUTORS = ("cpu", "reference")

log = logging.getLogger("golem.model")


@dataclass
class Model(OfFile):
    """A loaded chat model: one executor, one tokenizer, one template.

    context: positions of one slot. ring, window: places a sliding ring keeps and positions its
    attention looks back; 0 when all attention is full. quantum: see Decoder. suppress: ids never
    drawn. reasoning: the texts around a thought, or None. call: the notation of tool calls, or
    None. seconds: what loading took. projector: what sees and hears for it, or None. prediction:
    the executor of its prediction block, or None.
    """

    path: Path
    file: GGUF
    decoder: Decoder
    program: Program
    executor: Any
    tokenizer: Tokenizer
    template: ChatTemplate
    template_source: str  # "file" or "builtin"
    slots: int
    context: int
    pass_width: int
    estimate: Estimate
    seconds: float = 0.0
    sampling: dict[str, Any] = field(default_factory=dict)
    projector: Projector | None = None
    prediction: Any = None
    _embedding: Any = None
    _embedding_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        """The file's name without ``.gguf``."""
        return name_of(self.path)

    @property
    def architecture(self) -> str:
        return self.decoder.architecture

    @property
    def blocks(self) -> int:
        return self.decoder.blocks

    @property
    def context_length(self) -> int:
        """Positions the model was trained on."""
        return self.decoder.context_length

    @property
    def embedding_length(self) -> int:
        return self.decoder.width

    @property
    def n_vocab(self) -> int:
        """Logits of one scored column."""
        return self.decoder.vocabulary

    @property
    def eog(self) -> frozenset[int]:
        """Ids that end an answer."""
        return self.tokenizer.eog

    @property
    def marks(self) -> Mapping[str, Marks]:
        """The texts around the rows of media in a prompt, by kind."""
        return self.decoder.marks

    @property
    def padding(self) -> int:
        """The token that stands where a row of media is."""
        id = self.file.metadata.get("tokenizer.ggml.padding_token_id", 0)
        return int(id) if 0 <= id < self.n_vocab else 0

    @property
    def suppress(self) -> tuple[int, ...]:
        return self.tokenizer.suppress

    @property
    def widest(self) -> int:
        """Columns of the widest pass: more than ``pass_width`` where a picture must fit in."""
        return self.program.axes["n"]

    @property
    def scored(self) -> int:
        """Columns of a pass that may be scored."""
        return self.program.axes["m"]

    @property
    def reasoning(self) -> tuple[str, str] | None:
        return self.decoder.reasoning

    @property
    def efforts(self) -> Mapping[str, str]:
        """Efforts to think with that the template knows by another word."""
        return self.decoder.efforts

    @property
    def strays(self) -> tuple[str, ...]:
        return self.decoder.strays

    @property
    def after_thought(self) -> str:
        return self.decoder.after_thought

    @property
    def call(self) -> CallFormat | None:
        return self.decoder.call_format(self.template.source)

    @property
    def window(self) -> int:
        return self.program.window

    @cached_property
    def ring(self) -> int:
        rings = [s for s in self.program.states.values() if isinstance(s, Ring) and s.window]
        spare = [s.capacity(self.context, self.widest) - s.window for s in rings]
        return self.window + min(spare) if rings else 0

    @property
    def quantum(self) -> int:
        return self.program.quantum

    def embedding(self) -> Any:
        """Vectors of texts by these weights (golem_core.embedding.Embedding), made on first use.

        Closed with the model. Raises CannotEmbed.
        """
        from golem_core.embedding import embedding_of

        with self._embedding_lock:
            if self._embedding is None:
                self._embedding = embedding_of(self)
            return self._embedding

    def close(self) -> None:
        """Frees the executor's memory and the map of the file, whoever still has this object."""
        with self._embedding_lock:
            if self._embedding is not None:
                self._embedding.close()
        if self.projector is not None:
            self.projector.close()
        if self.prediction is not None:
            self.prediction.close()
        self.executor.close()
        self.executor.states.forget()
        self.program.forget()
        self.decoder.tensors = Tensors({})
        self.file.close()


def open_decoder(
    path: str | Path,
    *,
    context: int = 4096,
    parallel: int = 1,
    threads: int | None = None,
    pass_width: int | None = None,
    executor: str = "cpu",
    progress: Callable[[float], None] | None = None,
    mapped: bool = True,
    mlock: bool = False,
    builtin_template: bool = False,
    cache_type_k: str = "f16",
    cache_type_v: str = "f16",
    rope_scaling: str | None = None,
    rope_scale: float | None = None,
    rope_freq_base: float | None = None,
    rope_original_context: int | None = None,
    mmproj: str | Path | None = None,
    media: Limits | None = None,
    media_cache: int = CACHE_BYTES,
    draft: str = "off",
    plugins: Plugins | None = None,
    limit: int | None = None,
) -> Model:
    """Opens a GGUF chat model.

    Args:
        context: positions kept, cut between ``parallel`` conversations; 0 = as trained.
        threads: cores to compute on; None = the physical ones this process may use.
        pass_width: most columns of a pass.
        executor: "cpu", or "reference" for the slow one in numpy that defines every op.
        progress: called with 0 … 1 while weights are prepared.
        mapped: False reads the file into memory instead of mapping it.
        mlock: forbid the system to swap weights and states out; a warning where it refuses.
        builtin_template: render with the architecture's own template, not the file's.
        cache_type_k, cache_type_v: what keys and values are kept as: f16, f32, bf16, q8_0, q4_0.
        rope_scaling, rope_scale, rope_freq_base, rope_original_context: stretch the context:
            "none", "linear" or "yarn"; by what factor; the base; the context it starts from.
        mmproj: the projector that sees or hears for the model.
        media: bounds of pictures and recordings. media_cache: bytes of their rows to keep.
        draft: what will guess next tokens: "mtp" opens the file's prediction block, "auto" where
            it has one, "ngram" and "off" leave it alone.
        plugins: where the model class is looked up; None = the installed plugins.
        limit: bytes the model may take; None = the machine's or the control group's.

    Raises:
        ModelError, FormatError: one line each (both ValueError).
        OSError: the file cannot be read.
    """
    started = time.perf_counter()
    if executor not in EXECUTORS:
        raise ModelError(f"executor {executor!r}: it is one of {', '.join(EXECUTORS)}")
    try:
        check_threads(threads or 1)
    except ValueError as error:
        raise ModelError(str(error)) from None
    file = GGUF.open(path, mapped=mapped)
    projector = made = guesses = None
    try:
        scaling = _scaling(rope_scaling, rope_scale, rope_freq_base, rope_original_context)
        decoder = _decoder(file, scaling, plugins)
        slot = slot_context(decoder, context, parallel)
        width = _pass_width(pass_width)
        decoder.predicting = predicting(decoder, draft)
        if mmproj is not None:
            projector = open_projector(mmproj, decoder, media or Limits(), mapped=mapped)
            decoder.sees = True
        program = _program(decoder, width, parallel, projector)
        widest = program.axes["n"]
        cache = _cache(cache_type_k, cache_type_v)
        needs = estimate_program(program, parallel, slot, widest, cache)
        if projector is not None:
            needs += projector.estimate
        if decoder.predicting:
            with written(decoder):
                ahead = decoder.prediction_program(parallel)
            needs += estimate_beside(ahead, program)
        if not mapped:  # the whole file is in memory, its tables too
            needs = replace(needs, weights=needs.weights + needs.tables, tables=0)
        _check_memory(decoder, needs, limit, slot, parallel)
        _warn_of_context(decoder, slot)
        tokenizer = _tokenizer(decoder)
        template, source = _template(decoder, tokenizer, builtin_template)
        scores = drawn_from(program.outputs, hidden=decoder.predicting)
        made = _executor(
            executor, program, parallel, slot, widest, threads, progress, cache, scores
        )
        if decoder.predicting:
            guesses = open_prediction(made, ahead)
        if projector is not None:
            projector.ready(made, media_cache)
        if file.changed() or file.lost:
            raise ModelError(f"{path}: changed on disk while it was loaded; try again")
        if mlock:
            lock(made, program)
    except BaseException as error:
        for opened in (projector, guesses, made, file):
            if opened is not None:
                opened.close()
        if isinstance(error, ProgramError | StateError):
            raise ModelError(f"{path}: {error}") from error
        raise
    return Model(
        path=Path(path),
        file=file,
        decoder=decoder,
        program=program,
        executor=made,
        tokenizer=tokenizer,
        template=template,
        template_source=source,
        slots=parallel,
        context=slot,
        pass_width=width,
        estimate=needs,
        seconds=time.perf_counter() - started,
        sampling=sampling(file.metadata),
        projector=projector,
        prediction=guesses,
    )


def estimate(
    path: str | Path,
    *,
    context: int = 4096,
    parallel: int = 1,
    pass_width: int | None = None,
    plugins: Plugins | None = None,
) -> Estimate:
    """Bytes that ``open_decoder`` with the same arguments would take; loads nothing."""
    width = _pass_width(pass_width)
    with GGUF.open(path) as file:
        decoder = _decoder(file, {}, plugins)
        slot = slot_context(decoder, context, parallel)
        program = _program(decoder, width, parallel)
        return estimate_program(program, parallel, slot, width)


def open_program(file: GGUF, plugins: Plugins, pass_width: int = 64) -> tuple[Decoder, Program]:
    """The decoder of an open file and what it writes; nothing of the weights is read.

    Raises:
        ModelError: for a file that cannot be served; one line.
    """
    decoder = _decoder(file, {}, plugins)
    return decoder, _program(decoder, pass_width, 1)


def slot_context(decoder: Decoder, context: int, parallel: int) -> int:
    """Positions of one of ``parallel`` slots. Raises ModelError when they hold no conversation."""
    if parallel < 1:
        raise ModelError(f"{parallel} slots: -parallel must be at least 1")
    if not 0 <= context <= LONGEST_CONTEXT:
        raise ModelError(f"a context of {context}: -context is 0 (as trained) or a positive number")
    positions = context or decoder.context_length
    slot = positions // parallel
    if slot < LEAST_SLOT:
        raise ModelError(
            f"a context of {positions} cut into {parallel} slot(s) leaves {slot} position(s) each, "
            f"and a token and its answer take {LEAST_SLOT}; raise -context or lower -parallel"
        )
    return slot


def _warn_of_context(decoder: Decoder, slot: int) -> None:
    trained = decoder.context_length
    if slot > trained and decoder.scaling.kind == "none":
        log.warning(
            "%s: slots of %d positions, and the model was trained on %d: answers past that get "
            "worse; fewer positions help, or RoPE scaling: yarn, by %g",
            decoder.hyper.file,
            slot,
            trained,
            -(-slot // trained),
        )


def _scaling(kind, factor, base, original) -> dict[str, Any]:
    """The operator's words on angles, checked."""
    if kind is not None and kind not in KINDS:
        raise ModelError(f"-rope-scaling {kind}: it is one of {', '.join(KINDS)}")
    for flag, value, least in (("scale", factor, 0), ("freq-base", base, 1)):
        if value is not None and not value > least:
            raise ModelError(f"-rope-{flag} {value:g}: it must be more than {least}")
    if original is not None and original < 1:
        raise ModelError(f"-rope-original-context {original}: it must be at least 1")
    return {"kind": kind, "factor": factor, "base": base, "original": original}


def _decoder(file: GGUF, scaling: dict[str, Any], plugins: Plugins | None) -> Decoder:
    refuse_other_kinds(file)
    try:
        found = (load_plugins() if plugins is None else plugins).architecture(file.architecture)
        with plugins_own(file.architecture):
            return found(file, scaling=scaling)
    except (UnknownArchitecture, WeightError) as error:
        raise ModelError(f"{file.path}: {error}") from error


def _program(
    decoder: Decoder, pass_width: int, parallel: int, projector: Projector | None = None
) -> Program:
    """The program; its passes are as wide as the longest picture that must be seen at once."""
    scored = min(pass_width, max(SCORED, parallel))
    if projector is not None and projector.both_ways:
        pass_width = max(pass_width, projector.longest + scored)
    with written(decoder):
        program = decoder.program(pass_width, scored)
    unused = decoder.tensors.unused()
    if unused:
        log.debug("%s: not used: %s", decoder.hyper.file, ", ".join(unused))
    return program


def _pass_width(asked: int | None) -> int:
    asked = PASS_WIDTH if asked is None else asked
    if not 1 <= asked <= 1 << 16:
        raise ModelError(f"a pass of {asked} columns: -pass-width is from 1 to 65536")
    return asked


def _check_memory(
    decoder: Decoder, needs: Estimate, asked: int | None, slot: int, parallel: int
) -> None:
    limit = memory_limit() if asked is None else asked
    if needs.total <= limit:
        return
    gib = 1 << 30
    text = (
        f"{decoder.hyper.file}: needs {needs.total / gib:.1f} GiB ({needs.weights / gib:.1f} "
        f"weights, {needs.rings / gib:.1f} keys and values, {needs.arena / gib:.1f} activations) "
        f"and {told_limit(limit, asked is not None)}"
    )
    over = needs.total - limit
    fewer = -(-over // needs.per_position) if needs.per_position else slot
    fitting = (slot - fewer) * parallel // 256 * 256
    raise MemoryShort(text, max(0, fitting))


def _cache(type_k: str, type_v: str) -> tuple[str, str]:
    for side, name in (("k", type_k), ("v", type_v)):
        if name not in CACHE_TYPES:
            raise ModelError(f"-cache-type-{side} {name}: it is one of {', '.join(CACHE_TYPES)}")
    return type_k, type_v


def _tokenizer(decoder: Decoder) -> Tokenizer:
    try:
        tokenizer = load_tokenizer(decoder.file.metadata)
    except TokenizerError as error:
        raise ModelError(f"{decoder.hyper.file}: {error}") from error
    if tokenizer.n_vocab != decoder.vocabulary:
        raise ModelError(
            f"{decoder.hyper.file}: the vocabulary has {tokenizer.n_vocab} tokens and "
            f"token_embd.weight {decoder.vocabulary} rows; they must be equal"
        )
    return tokenizer


def _template(decoder: Decoder, tokenizer: Tokenizer, builtin: bool) -> tuple[ChatTemplate, str]:
    """The template and where it is from; a file's own that nobody can read is warned about."""
    ids = {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos}
    texts = {name: "" if id is None else tokenizer.text(id) for name, id in ids.items()}
    own = decoder.hyper.text(".tokenizer.chat_template", "")
    if own and not builtin:
        try:
            return decoder.chat_template(own, **texts), "file"
        except TemplateError as error:
            log.warning(
                "%s: %s; the built-in template of %s is used, and answers may suffer",
                decoder.hyper.file,
                error,
                decoder.architecture,
            )
    return decoder.chat_template(decoder.fallback_template(), **texts), "builtin"


def _executor(
    kind: str,
    program: Program,
    slots: int,
    context: int,
    pass_width: int,
    threads: int | None,
    progress: Callable[[float], None] | None,
    cache: tuple[str, str],
    scores: tuple[str, ...],
) -> Any:
    maxima = {"n": pass_width, "m": program.axes["m"]}
    if kind == "reference":
        return ReferenceExecutor(program, slots=slots, context=context, maxima=maxima)
    from golem_core.cpu import CpuExecutor  # compiled; a checkout that only reads files lacks it

    return CpuExecutor(
        program,
        slots=slots,
        context=context,
        maxima=maxima,
        threads=threads,
        wanted=(scores, ()),
        progress=progress,
        cache=cache,
    )
