"""A model without weights: its logits are a hash of what its cache holds, so that a wrong cache
draws a wrong text, and every pass is recorded."""

import codecs
import threading
import zlib
from dataclasses import dataclass, field

import numpy as np

from golem_core.sample import SamplerParams
from golem_core.schedule import Request
from golem_core.state import Ring, States

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
    when one of them was written over. before: called with each Seen before it is computed.
    script: history (tuple of ids) -> the token to draw, or None for a hash of the history.
    """

    def __init__(self, slots=1, context=256, window=0, pass_width=32, recurrent=False):
        ring = Ring("ring", 1, 2, 2, window=window or None)
        self.states = States([ring], slots, context, pass_width)
        self.window = window
        self.capacity = self.states.rings["ring"].capacity if window else context
        self._cache = [dict() for _ in range(slots)]  # place -> (position, token)
        self.seen: list[Seen] = []
        self.before = lambda seen: None
        self.after = lambda seen, logits: logits
        self.script = lambda history: None
        self.owner = None  # the thread that runs passes

    def history(self, slot, index):
        start = max(0, index - self.window + 1) if self.window else 0
        tokens = []
        for position in range(start, index + 1):
            owner, token = self._cache[slot].get(position % self.capacity, (-1, -1))
            assert owner == position, f"slot {slot}: position {position} was written over"
            tokens.append(token)
        return (start, *tokens)

    def logits(self, history):
        wanted = self.script(history[1:])
        if wanted is not None:
            row = np.full(V, -20, np.float32)
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
        where = {}
        column = 0
        for slot, first, count, index, _ in seen.runs:
            assert first == column
            column += count
            if index == 0:
                self._cache[slot].clear()
            for i in range(count):
                place = (index + i) % self.capacity
                self._cache[slot][place] = (index + i, seen.tokens[first + i])
                where[first + i] = (slot, index + i)
        assert column == len(tokens)
        rows = [self.logits(self.history(*where[c])) for c in seen.outputs]
        logits = np.array(rows, np.float32).reshape(len(rows), V)
        return {"logits": self.after(seen, logits)}


@dataclass
class FakeModel:
    slots: int = 1
    context: int = 256
    window: int = 0
    pass_width: int = 32
    quantum: int = 1
    name: str = "fake"
    path: str = "/models/fake.gguf"
    n_vocab: int = V
    eog: frozenset = frozenset([EOG])
    architecture: str = "hash"
    sampling: dict = field(default_factory=dict)
    closed: bool = False

    def __post_init__(self):
        self.tokenizer = FakeTokenizer()
        self.template = FakeTemplate()
        self.file = FakeFile()
        self.executor = FakeExecutor(self.slots, self.context, self.window, self.pass_width)

    def close(self):
        self.closed = True

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
