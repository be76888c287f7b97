"""A model without weights: its logits are a hash of what its cache holds, so that a wrong cache
draws a wrong text, and every pass is recorded."""

import codecs
import threading
import zlib
from dataclasses import dataclass, field

import numpy as np

from golem_core.model.errors import CannotEmbed
from golem_core.sample import SamplerParams
from golem_core.schedule import Request
from golem_core.state import Matrix, Ring, States

EOG = 256
V = 257  # 256 bytes and an end token
GREEDY = SamplerParams(temperature=0)
WAIT = 20  # seconds a test waits for what must come at once


def ask(text, **fields):
    """A greedy request, unless ``params`` says otherwise."""
    return Request(list(text.encode()), **{"params": GREEDY, **fields})


class FakeTokenizer:
    """One token a byte."""

    n_vocab = V
    suppress = ()
    eog = frozenset([EOG])
    bos = ord("^")
    add_bos = True

    def text(self, token):
        return chr(token)

    @property
    def pieces(self):
        return [self.piece(token) for token in range(V)]

    def is_control(self, token):
        return token == EOG

    def encode(self, text, *, add_special=False, parse_special=True):
        return [self.bos] * add_special + list(text.encode())

    def piece(self, token, special=False):
        return bytes([token]) if token < 256 else b"<end>" if special else b""

    def decode(self, ids, special=False):
        return b"".join(self.piece(i, special) for i in ids).decode(errors="replace")

    def stream(self, *, shown=frozenset()):
        return FakeStream(self, shown)


class FakeStream:
    """Whole characters only."""

    def __init__(self, tokenizer, shown):
        self._tokenizer = tokenizer
        self._shown = shown
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token):
        return self._decoder.decode(self._tokenizer.piece(token, token in self._shown))

    @property
    def held(self):
        return self._decoder.getstate()[0]


class FakeTemplate:
    """``^[role:content]…[`` , and the arguments that are not false."""

    def render(self, messages, *, tools=None, add_generation_prompt=True, **arguments):
        turns = "".join(f"[{m['role']}:{m['content']}]" for m in messages)
        named = "".join(f"({k}={v})" for k, v in arguments.items() if v)
        return f"^{named}{turns}" + "[" * add_generation_prompt


class FakeFile:
    def __init__(self):
        self.fingerprint = "of a model without weights"
        self.is_changed = False
        self.lost = False
        self.looks = 0

    def changed(self):
        self.looks += 1
        return self.is_changed


@dataclass
class Seen:
    """One recorded pass."""

    runs: list  # of (slot, first column, count, index, role)
    tokens: list
    outputs: list

    @property
    def slots(self):
        return {run[0] for run in self.runs}


class FakeExecutor:
    """Keeps the tokens where a real one keeps keys, and looks at no others.

    A column reads the last ``window`` positions (all when 0) out of its slot's ring and fails
    when one of them was written over; one that is recurrent reads a digest of all of them instead,
    and fails when that is of another position. before: called with each Seen before it is computed.
    script: history (tuple of ids) -> the token to draw, or None for a hash of the history.
    """

    vocabulary = V

    def __init__(self, slots=1, context=256, window=0, pass_width=32, recurrent=False):
        ring = Ring("ring", 1, 1, 1, window=window or None)  # keys: positions + 1; values: tokens
        states = [ring, *([Matrix("digest", 1, 1, 2)] if recurrent else [])]
        self.states = States(states, slots, context, pass_width, type_k="f32", type_v="f32")
        arrays = self.states.rings["ring"]
        self.window = window
        self.capacity = arrays.capacity
        # (slots, places / 64, 64)
        self._positions, self._tokens = arrays.k[:, :, 0, :, 0], arrays.v[:, :, 0, :, 0]
        digests = self.states.matrices.get("digest")
        self._digests = None if digests is None else digests[:, 0, 0]  # positions read, their hash
        self.seen: list[Seen] = []
        self.before = lambda seen: None
        self.after = lambda seen, logits: logits
        self.script = lambda history: None
        self.owner = None  # the thread that runs passes

    def history(self, slot, index):
        """The tokens a column sees, after where they start; or, recurrent, its digest too."""
        start = max(0, index - self.window + 1) if self.window else 0
        places = np.divmod(np.arange(start, index + 1) % self.capacity, 64)
        found = self._positions[slot, *places] == np.arange(start, index + 1) + 1
        assert found.all(), f"slot {slot}: position {start + found.argmin()} was written over"
        return (start, *self._tokens[slot, *places].astype(int).tolist())

    def _digest(self, slot, index, token):
        """Reads one token into the recurrent state."""
        state = self._digests[slot]
        if index == 0:
            state[:] = 0
        assert state[0] == index, f"slot {slot}: the state is of position {state[0]}, not {index}"
        state[:] = index + 1, zlib.crc32(bytes(f"{state[1]} {token}", "ascii")) % (1 << 24)
        return state[1]

    def logits(self, history):
        wanted = self.script(tuple(t for t in history[1:] if isinstance(t, int)))
        if wanted is not None:
            row = np.full(self.vocabulary, -20, np.float32)
            row[wanted] = 20
            return row
        seed = zlib.crc32(np.array(history, np.int32).tobytes())
        row = np.random.default_rng(seed).standard_normal(V).astype(np.float32) * 3
        row[128:256] -= 20  # mostly ASCII
        row[EOG] -= 3
        return row

    def run(self, inputs, wanted=("logits",)):
        assert wanted == ("logits",)
        thread = threading.get_ident()
        assert self.owner in (None, thread), "two threads ran passes"
        self.owner = thread
        runs, tokens, outputs = (inputs[name] for name in ("runs", "tokens", "outputs"))
        assert {a.dtype for a in inputs.values()} == {np.dtype(np.int32)}
        seen = Seen([tuple(map(int, run)) for run in runs], tokens.tolist(), outputs.tolist())
        self.seen.append(seen)
        assert len(seen.slots) == len(seen.runs), "a slot has one run a pass"
        assert [run[4] for run in seen.runs] == sorted(run[4] for run in seen.runs)
        assert len(tokens) <= self.states.pass_width
        self.before(seen)
        rows, column = {}, 0
        for slot, first, count, index, _ in seen.runs:
            assert first == column
            if index == 0:
                self._positions[slot] = 0
            for column in range(first, first + count):
                at, token = index + column - first, seen.tokens[column]
                place = divmod(at % self.capacity, 64)
                self._positions[slot, *place] = at + 1
                self._tokens[slot, *place] = token
                digest = None if self._digests is None else self._digest(slot, at, token)
                if column in seen.outputs:
                    history = self.history(slot, at)
                    rows[column] = self.logits(history if digest is None else (*history, digest))
            column = first + count
        assert column == len(tokens)
        rows = [rows[column] for column in seen.outputs]
        logits = np.array(rows, np.float32).reshape(len(rows), self.vocabulary)
        return {"logits": self.after(seen, logits)}


class PiecewiseExecutor(FakeExecutor):
    """One whose passes can be run in pieces; time is what its clock says.

    cost: runs -> seconds of a pass. step: seconds of a step, between which a pass can stop. held:
    called before every piece.
    """

    def __init__(self, *args, clock, cost, step=0.0, **fields):
        super().__init__(*args, **fields)
        self.clock = clock
        self.cost = cost
        self.step = step
        self.held = lambda: None
        self.open = None  # the pass that is run in pieces
        self.twins = 0  # passes between pieces

    def run(self, inputs, wanted=("logits",)):
        assert self.open is None, "a pass of the executor beside one in pieces"
        return self._whole(inputs, wanted)

    def _whole(self, inputs, wanted):
        made = super().run(inputs, wanted)
        self.clock.now += self.cost(self.seen[-1].runs)
        return made

    def twin(self, columns, wanted):
        return _Twin(self, columns)

    def begin(self, inputs, wanted):
        assert self.open is None
        self.open = _Pieces(self, inputs, wanted)
        return self.open


class _Twin:
    def __init__(self, executor, columns):
        self._executor, self._columns = executor, columns

    def run(self, inputs, wanted=("logits",)):
        assert len(inputs["tokens"]) <= self._columns
        slots = set(inputs["runs"][:, 0].tolist())
        if self._executor.open is not None:
            assert not slots & self._executor.open.slots
            self._executor.twins += 1
        return self._executor._whole(inputs, wanted)


class _Pieces:
    def __init__(self, executor, inputs, wanted):
        self._executor, self._inputs, self._wanted = executor, inputs, wanted
        self._left = executor.cost(inputs["runs"].tolist())
        self.slots = set(inputs["runs"][:, 0].tolist())
        self.outputs = None

    def advance(self, seconds):
        executor = self._executor
        executor.held()
        steps = max(1, -(-seconds // executor.step)) if executor.step else 0
        took = min(self._left, max(seconds, steps * executor.step) if seconds else self._left)
        self._left -= took
        executor.clock.now += took
        if self._left > 0:
            return False
        now = executor.clock.now
        self.outputs = executor._whole(self._inputs, self._wanted)
        executor.clock.now = now
        return True

    def close(self):
        if self._executor.open is self:
            self._executor.open = None


@dataclass
class FakeModel:
    slots: int = 1
    context: int = 256
    window: int = 0
    pass_width: int = 32
    quantum: int = 1
    recurrent: bool = False
    scored: int = 64
    name: str = "fake"
    path: str = "/models/fake.gguf"
    n_vocab: int = V
    eog: frozenset = frozenset([EOG])
    architecture: str = "hash"
    sampling: dict = field(default_factory=dict)
    closed: bool = False
    projector: None = None
    prediction: None = None
    embedding_length: int = 8

    @property
    def widest(self):
        return self.pass_width

    def __post_init__(self):
        self.tokenizer = FakeTokenizer()
        self.template = FakeTemplate()
        self.file = FakeFile()
        self.executor = FakeExecutor(
            self.slots, self.context, self.window, self.pass_width, self.recurrent
        )

    def close(self):
        self.closed = True

    def embedding(self):
        raise CannotEmbed("fake (hash) gives no vectors")

    def answers(self, script):
        """Scripted answers: {prompt text: answer text}; an answer ends with the end token."""
        table = {}
        for prompt, answer in script.items():
            ids = list(prompt.encode())
            for token in [*answer.encode(), EOG]:
                table[tuple(ids)] = token
                ids.append(token)
        self.executor.script = table.get


class FakeClock:
    """Time that passes when told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Gate:
    """Holds passes: ``wait_for_pass`` returns once one stands at the gate, ``open`` lets it go."""

    def __init__(self, executor, closed=True):
        self._arrived = threading.Semaphore(0)
        self._go = threading.Semaphore(0)
        self.closed = closed
        executor.before = self._hold

    def _hold(self, seen):
        if not self.closed:
            return
        self._arrived.release()
        assert self._go.acquire(timeout=WAIT)

    def wait_for_pass(self):
        assert self._arrived.acquire(timeout=WAIT), "no pass came"

    def let_one_go(self):
        self._go.release()

    def step(self):
        self.wait_for_pass()
        self.let_one_go()

    def open(self):
        self.closed = False
        self._go.release()


def together(engine, gate, requests):
    """Submits requests so that their first pass holds all of them; it stands at the gate next."""
    first = engine.submit(Request([0], max_tokens=1))
    gate.wait_for_pass()
    jobs = [engine.submit(request) for request in requests]
    gate.let_one_go()
    first.wait(WAIT)
    return jobs
