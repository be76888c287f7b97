"""golem without a server: open a model, draw from it, close it.

``golem_core.open`` gives a Session; ``generate`` and ``chat`` give a Generation, an iterator of
steps that can be left at any time. Underneath is the same engine that the server uses, so several
threads may draw from one Session at once (``parallel=``), in shared passes.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from golem_core import arguments
from golem_core.embedding import Embedding, open_embedding
from golem_core.media import MediaError
from golem_core.model.embedder import embeds, open_embedder
from golem_core.model.errors import CannotEmbed
from golem_core.model.memory import checkpoint_memory as room_for_checkpoints
from golem_core.model.projector import Rows
from golem_core.parts import Medium, read_parts
from golem_core.sample import SamplerParams
from golem_core.schedule import Engine, EngineClosed, Job, Request, Result, SlotState
from golem_core.schedule import Step as EngineStep
from golem_core.schedule.draft import KINDS
from golem_core.schedule.ending import ending
from golem_core.schedule.places import hidden, new_salt, place, refuse_overlong_media
from golem_core.text.rendered import encode_rendered

__all__ = ["CannotEmbed", "Embedding", "Generation", "Session", "SlotBusy", "Step", "open"]

CLOSED = "this model is closed: open it again"
OF_TEMPLATES = ("self", "messages", "tools", "add_generation_prompt")  # given by chat
MOST_THREADS = 1024
MOST_SLOTS = 256
MOST_DRAFTED = 63  # tokens of a guess
RESET_SECONDS = 0.005  # between two looks at a slot whose answer was given up


class Step(NamedTuple):
    """One drawn token."""

    piece: str  # text it released; "" while a character or a possible stop text is incomplete
    token: int
    logprob: float | None  # natural logarithm; None unless asked for
    top: tuple[tuple[int, float], ...]  # best (token, logprob) it competed with; () unless asked
    count: int  # tokens drawn so far
    end: bool  # nothing follows


class Generation:
    """An answer being drawn: an iterator of steps, and its result.

    Leaving it early (``close``, the end of a ``with`` block, or dropping the last reference) stops
    the drawing within a pass. Threads that iterate it together share its steps: each is seen by
    one of them, the end by all.
    """

    def __init__(self, job: Job):
        self._job = job
        self._steps: list[EngineStep] = []
        self._reading = threading.Lock()

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        """The next token; waits for it. Raises PassFailed or EngineClosed when drawing failed."""
        with self._reading:
            if not self._steps:
                self._steps = (self._job.steps() or [])[::-1]
            if not self._steps:
                raise StopIteration
            token, text, count, _, probs, end, _ = self._steps.pop()
        logprob, top = probs if probs is not None else (None, ())
        return Step(text, token, logprob, top, count, end)

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._job.abandon()

    def close(self) -> None:
        """Stops drawing. The steps drawn until now may still be read. Idempotent."""
        self._job.cancel()

    @property
    def result(self) -> Result:
        """Text, counts, times and why it ended; waits until it has. Raises as iterating does."""
        result = self._job.wait()
        assert result is not None
        return result

    @property
    def text(self) -> str:
        """The whole answer; waits for it."""
        return self.result.text


class SlotBusy(RuntimeError):
    """A slot is drawing an answer and was asked for something that only idle ones do."""


class SlotHandle:
    """One slot: what it is doing, and forgetting."""

    def __init__(self, session: Session, index: int):
        self.index = index
        self._session = session

    @property
    def _engine(self) -> Engine:
        self._session.require_open()
        return self._session.engine

    @property
    def state(self) -> SlotState:
        """What it was doing when it was looked at."""
        return self._engine.slots[self.index]

    def erase(self) -> int:
        """Forgets the conversation it holds; returns its tokens. Raises SlotBusy."""
        count = self._engine.erase(self.index)
        if count is None:
            raise SlotBusy(
                f"slot {self.index} is drawing an answer: wait for it, or reset() the slot"
            )
        return count

    def save(self, path: str | Path) -> int:
        """Writes the conversation it holds to a file, once it is idle; returns its tokens.

        Raises OSError where it cannot be written; what was there before stays.
        """
        return self._engine.save(self.index, arguments.path("path", path))[0]

    def restore(self, path: str | Path) -> int:
        """Takes a conversation that ``save`` wrote for this model; returns its tokens.

        Raises SlotFileError (ValueError) for a file of another model, of another context or that
        is damaged, OSError; the slot is empty then.
        """
        return self._engine.restore(self.index, arguments.path("path", path))[0]

    def reset(self) -> int:
        """Gives up the answer it draws, if any, and forgets everything; returns the tokens."""
        while (count := self._engine.erase(self.index)) is None:
            self._engine.give_up(self.index)
            time.sleep(RESET_SECONDS)
        return count


class Session:
    """An open model. Close it, or use it in a ``with`` block.

    model: what ``golem_core.model.open_decoder`` returns; closed with the session. The other
    arguments are Engine's.
    """

    def __init__(self, model: Any, **engine: Any):
        self.model = model
        self._closed = False
        try:
            self.engine = Engine(model, **engine)
            self.engine.start()
        except BaseException:
            model.close()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends whatever is being drawn and frees the model. Idempotent."""
        self._closed = True
        self.engine.close()
        self.model.close()

    def require_open(self) -> None:
        """Raises EngineClosed once the session is closed: nothing can be asked of it then."""
        if self._closed:
            raise EngineClosed(CLOSED)

    @property
    def context(self) -> int:
        """Positions one conversation may fill, prompt and answer together."""
        return self.engine.context

    def slot(self, index: int) -> SlotHandle:
        """A slot of the session, from 0. Raises IndexError for one that is not there."""
        self.require_open()
        index = arguments.whole("index", index, None, none=False)
        if not 0 <= index < len(self.engine.slots):
            raise IndexError(f"there is no slot {index}; there are {len(self.engine.slots)}")
        return SlotHandle(self, index)

    def tokenize(
        self, text: str, *, add_special: bool = False, parse_special: bool = True
    ) -> list[int]:
        """The ids of a text. add_special: with the begin token the model wants.

        parse_special: texts of control tokens become those tokens.
        """
        self.require_open()
        return self.model.tokenizer.encode(
            arguments.text("text", text),
            add_special=arguments.flag("add_special", add_special),
            parse_special=arguments.flag("parse_special", parse_special),
        )

    def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """The text of ids. special: control tokens are written out."""
        self.require_open()
        tokens = arguments.ids("tokens", tokens, self.model.n_vocab)
        return self.model.tokenizer.decode(tokens, special=arguments.flag("special", special))

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        logprobs: int = 0,
        cache_prompt: bool = True,
        **sampling: Any,
    ) -> Generation:
        """Goes on from a prompt.

        prompt: text, or ids that are used as they are. max_tokens: most tokens drawn, -1 = until
        the context is full. stop: texts that end the answer and are not part of it. logprobs: best
        tokens to report with each step. cache_prompt: reuse what an earlier answer left. sampling:
        SamplerParams' fields, over the file's own settings.

        Raises at once TypeError and ValueError, which name the argument, its value and what is
        possible (ParamError, ContextExceeded are ValueErrors); QueueFull, EngineClosed.
        """
        request = self._request(max_tokens, stop, logprobs, cache_prompt, sampling)
        prompt = arguments.prompt(prompt, self.model.n_vocab)
        tokens = self.tokenize(prompt, add_special=True) if isinstance(prompt, str) else prompt
        return Generation(self.engine.submit(replace(request, tokens=tokens)))

    def _request(
        self,
        max_tokens: Any = None,
        stop: Any = (),
        logprobs: Any = 0,
        cache_prompt: Any = True,
        sampling: Mapping[str, Any] | None = None,
    ) -> Request:
        """What ``generate`` was asked for, without a prompt yet."""
        self.require_open()
        sampling = sampling or {}
        arguments.sampling(sampling)
        return Request(
            (),
            max_tokens=arguments.whole(
                "max_tokens", max_tokens, -1, meaning="-1 fills the context"
            ),
            params=SamplerParams.resolve(
                self.model.sampling, sampling, tokenizer=self.model.tokenizer
            ),
            stop=arguments.texts("stop", stop),
            cache_prompt=arguments.flag("cache_prompt", cache_prompt),
            n_probs=arguments.whole("logprobs", logprobs, 0, self.model.n_vocab, none=False),
        )

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_arguments: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        logprobs: int = 0,
        cache_prompt: bool = True,
        **sampling: Any,
    ) -> Generation:
        """Answers a conversation, written as the model's chat template has it.

        messages: ``{"role": "system" | "user" | "assistant" | "tool", "content": text}``; instead
        of a text, a list of parts: ``{"type": "text", "text": …}``, ``{"type": "image", "image":
        …}``, ``{"type": "audio", "audio": …}`` (golem_core/parts.py tells what these may be), where
        the model was opened with a projector (``mmproj=``). tools: offered to the template.
        template_arguments: further variables, such as ``enable_thinking``, which is False when
        left out. The rest is ``generate``'s.

        Returns when what there is to look at or to listen to has been. Raises TemplateError too,
        MediaError (ValueError) for what cannot be decoded or is too large, OSError for a file that
        cannot be read.
        """
        request = self._request(max_tokens, stop, logprobs, cache_prompt, sampling)
        found, media = read_parts(arguments.messages(messages), self.model.projector)
        tools = arguments.tools(tools)
        variables = {
            "enable_thinking": False,
            **arguments.variables("template_arguments", template_arguments, OF_TEMPLATES),
        }
        salt, marks = new_salt(), self.model.marks if media else {}
        render = partial(
            self.model.template.render,
            tools=hidden(tools, marks, salt) if media else tools,
            add_generation_prompt=True,
            **variables,
        )
        text = render(hidden(found, marks, salt) if media else found)
        if media:
            tokens, spans = place(self.model, text, self._rows(media), salt)
            request = replace(request, tokens=tokens, media=spans)
        else:
            tokens = encode_rendered(self.model.tokenizer, text)
            last = ending(self.model, found, text, tokens, render)
            request = replace(request, tokens=tokens, ending=last)
        return Generation(self.engine.submit(request))

    def _rows(self, media: Sequence[Medium]) -> list[Rows]:
        """What the model reads of media; no more of it is looked at than fits."""
        found: list[Rows] = []
        look = self.engine.timer()
        for one in media:
            try:
                found.append(self.engine.rows(one.kind, one.data, look))
            except MediaError as error:
                raise MediaError(f"{one.where}: {error}") from None
            refuse_overlong_media(found, self.context)
        return found

    def embed(self, texts: str | Sequence[str], **options: Any) -> Any:
        """Vectors of texts by the chat model's own weights, as Embedding.embed makes them.

        The last token's row, or what the file's pooling_type says. Raises CannotEmbed where the
        model keeps more of a conversation than keys and values.
        """
        self.require_open()
        return self.model.embedding().embed(texts, **options)


def open(
    path: str | Path,
    *,
    context: int = 4096,
    parallel: int = 1,
    threads: int | None = None,
    queue: int = 256,
    cache_ttl: float = 0.0,
    default_length: int = 1024,
    queue_timeout: float = 0.0,
    request_timeout: float = 0.0,
    draft: str = "auto",
    draft_n: int = 0,
    checkpoints: int = 3,
    checkpoint_memory: int = 0,
    progress: Callable[[float], None] | None = None,
    **model: Any,
) -> Session | Embedding:
    """Opens a GGUF model: a Session to draw from, or an Embedding where the file makes vectors.

    context: positions kept, cut between ``parallel`` conversations; 0 = as trained. threads: cores
    to compute on, the physical ones when None. queue: requests that may wait for their turn.
    cache_ttl: seconds after which an idle conversation is forgotten, 0 = never. default_length:
    most tokens of an answer that names no ``max_tokens``. queue_timeout, request_timeout: seconds
    an answer may wait, and take, 0 = any time. draft: "off" draws one token a pass; "ngram" guesses
    the next ones from what was said, "mtp" by the file's prediction block, "auto" by whatever it
    has, where that is faster; the text is the same. draft_n: most tokens of a guess, 0 = as many
    as pay. checkpoints: copies of its recurrent state that a conversation
    keeps, of models that have one, in checkpoint_memory bytes, 0 = a quarter of the machine's.
    progress: called with 0 … 1 while weights are prepared. model: further arguments of
    ``golem_core.model.open_decoder``. An Embedding takes of these threads, queue and progress.

    Raises ValueError (its text names the file and what is wrong, or the argument), TypeError or
    OSError.
    """
    from golem_core.model import open_decoder

    engine = {
        "queue": arguments.whole("queue", queue, 0, none=False),
        "cache_ttl": arguments.seconds("cache_ttl", cache_ttl),
        "default_length": arguments.whole(
            "default_length", default_length, -1, meaning="-1 fills the context", none=False
        ),
        "queue_timeout": arguments.seconds("queue_timeout", queue_timeout),
        "request_timeout": arguments.seconds("request_timeout", request_timeout),
        "draft": arguments.choice("draft", draft, KINDS),
        "draft_n": arguments.whole("draft_n", draft_n, 0, MOST_DRAFTED, none=False),
        "checkpoints": arguments.whole("checkpoints", checkpoints, 0, none=False),
    }
    memory = arguments.whole("checkpoint_memory", checkpoint_memory, 0, none=False)
    model |= {
        "context": arguments.whole("context", context, 0, meaning="0 = as trained", none=False),
        "parallel": arguments.whole("parallel", parallel, 1, MOST_SLOTS, none=False),
        "draft": engine["draft"],
        "threads": arguments.whole("threads", threads, 1, MOST_THREADS),
        "progress": progress,
    }
    _check_names(model, open_decoder)
    path = arguments.path("path", path)
    if embeds(path, model.get("plugins")):
        taken = inspect.signature(open_embedder).parameters
        given = {name: value for name, value in model.items() if name in taken}
        return open_embedding(path, queue=engine["queue"], **given)
    opened = open_decoder(path, **model)
    room = room_for_checkpoints(opened.estimate, memory)
    return Session(opened, checkpoint_memory=room, **engine)


def _check_names(model: Mapping[str, Any], opener: Callable[..., Any]) -> None:
    """Refuses what neither ``open`` nor the opener takes. Raises TypeError."""
    known = dict.fromkeys(
        [*inspect.signature(open).parameters, *inspect.signature(opener).parameters]
    )
    known.pop("model", None)
    for name in model:
        if name not in known:
            raise arguments.unknown(name, known, "argument")
