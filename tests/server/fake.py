"""A scripted model on the real engine, and a process that serves it under either server.

The model's answer is a function of the last message: tests say there what they want. It needs no
weights and no compiled executor. Routes under ``/test`` let a test hold passes back and look at
the engine from outside the process.
"""

import json
import os
import sys
import threading
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import numpy as np

from golem_core.model.errors import CannotEmbed
from golem_core.model.memory import Estimate
from golem_core.state import Ring, States
from golem_core.text.tagged_calls import QwenCalls
from golem_core.text.template import TemplateError
from golem_server import body, edge, sse, wsgi
from golem_server.app import Application
from golem_server.memory import bound_arenas
from golem_server.serve import Server

N_VOCAB = 260
BOS, END = 256, 257
TRAINED = 512  # positions


class FakeTokenizer:
    """One id a byte; ``<end>`` and ``<bos>`` are special."""

    n_vocab = N_VOCAB
    longest = 1
    bos = BOS
    eos = END
    add_bos = False
    suppress = ()

    def encode(self, text, *, add_special=False, parse_special=True):
        ids = [BOS] if add_special and self.add_bos else []
        return ids + list(text.encode())

    def decode(self, ids, special=False):
        return bytes(i for i in ids if i < 256).decode(errors="replace")

    def decode_bytes(self, ids, special=False):
        return b"".join(self.piece(i, special) for i in ids)

    def text(self, token):
        return {BOS: "<bos>", END: "<end>"}.get(token) or chr(token)

    def piece(self, token, special=False):
        if token < 256:
            return bytes([token])
        return self.text(token).encode() if special else b""

    @property
    def pieces(self):
        return [self.piece(token) for token in range(N_VOCAB)]

    def is_control(self, token):
        return token >= 256

    def stream(self, *, shown=frozenset()):
        return FakeStream(self, shown)


class FakeStream:
    """Whole characters only."""

    def __init__(self, tokenizer, shown):
        self.tokenizer = tokenizer
        self.shown = shown
        self.pending = b""

    @property
    def held(self):
        return self.pending

    def push(self, token):
        self.pending += self.tokenizer.piece(token, token in self.shown)
        try:
            text = self.pending.decode()
        except UnicodeDecodeError:
            return ""
        self.pending = b""
        return text


class FakeTemplate:
    """``<role>content`` a line, and the rest as JSON; "bad template" cannot be rendered.

    With ``inside`` the answer begins in a thought.
    """

    bos_token = eos_token = ""
    source = "{{ messages }} {{ tools }} {{ enable_thinking }}"

    def render(self, messages, *, tools=None, add_generation_prompt=True, **arguments):
        if any(m["content"] == "bad template" for m in messages):
            raise TemplateError("the template says: this conversation makes no sense")
        text = "".join(self.turn(m) for m in messages)
        if arguments.get("shout"):
            text = text.upper()
        names = ",".join(tool["function"]["name"] for tool in tools or [])
        text = (f"<tools>{names}\n" if tools else "") + text
        text = ("<inside>" if arguments.get("inside") else "") + text
        if arguments.get("enable_thinking"):
            text = f"<thinks>{arguments.get('reasoning_effort', '')}\n" + text
        if not add_generation_prompt:
            return text
        return text + "<assistant>" + ("<think>\n" if arguments.get("inside") else "")

    def turn(self, message):
        more = {key: message[key] for key in message if key not in ("role", "content")}
        shown = json.dumps(more) if more else ""
        return f"<{message['role']}>{message['content']}{shown}\n"


def answer_to(prompt: str) -> bytes | None:
    """What the model says, all of it; None never ends."""
    message = prompt.split("<user>")[-1].split("\n")[0]
    if "<tool>" in prompt.split("<user>")[-1]:
        return b"the tools said: " + prompt.split("<tool>", 1)[1].encode()
    word, _, rest = message.partition(" ")
    if word == "forever":
        return None
    if word == "say":
        return rest.encode()
    if word == "bytes":
        return bytes.fromhex(rest)
    if word == "json":
        return json.loads(rest).encode()
    if word == "prompt":
        return prompt.replace("<assistant>", "[assistant]").encode()
    return b"you said: " + message.encode()


class FakeExecutor:
    """Knows what every slot has been fed, and gives the next byte of its answer.

    ``gate`` is closed by a test to hold passes back; ``passes`` records the slots of each.
    ``FAKE_PASS_SECONDS`` makes every pass last.
    """

    threads = 1

    def __init__(self, slots: int, context: int):
        # What is fed lies where a real one keeps keys, so that it moves with the states.
        kept = [Ring("fed", 1, 1, 1)]
        self.states = States(kept, slots, context, FakeModel.pass_width, type_k="f32", type_v="f32")
        ring = self.states.rings["fed"]
        self.fed = ring.k[:, :, 0, :, 0]  # (slots, positions / 64, 64): tokens
        self.known = ring.v[:, :, 0, :, 0]  # 1 where something was fed
        self.gate = threading.Condition()
        self.allowed: int | None = None  # passes that may start; None = any number
        self.passes: list[list[int]] = []
        self.waits = False  # a pass is held back now
        self.seconds = float(os.environ.get("FAKE_PASS_SECONDS", 0))

    def allow(self, count: int | None) -> None:
        with self.gate:
            self.allowed = count
            self.gate.notify_all()

    def run(self, inputs, wanted=("logits",)):
        runs, tokens = inputs["runs"], inputs["tokens"]
        with self.gate:
            self.passes.append([int(row[0]) for row in runs])
            while self.allowed == 0:
                self.waits = True
                self.gate.wait()
            self.waits = False
            if self.allowed is not None:
                self.allowed -= 1
            self.gate.wait_for(lambda: False, self.seconds)
        places = {}
        for slot, first, count, index, _role in runs:
            known, fed = self.known[slot].ravel(), self.fed[slot].ravel()
            assert known[:index].all(), "a run must follow what its slot holds"
            fed[index : index + count] = tokens[first : first + count]
            known = np.arange(len(known)) < index + count
            self.known[slot], self.fed[slot] = known.reshape(-1, 64), fed.reshape(-1, 64)
            places |= {first + i: fed[: index + i + 1] for i in range(count)}
        logits = np.zeros((len(inputs["outputs"]), N_VOCAB), np.float32)
        for row, column in zip(logits, inputs["outputs"], strict=True):
            row[:] = self.score(places[int(column)].astype(int).tolist())
        return {"logits": logits}

    def score(self, held):
        row = np.zeros(N_VOCAB, np.float32)
        before, marker, after = bytes(i for i in held if i < 256).rpartition(b"<assistant>")
        prompt, said = (before, after) if marker else (after, b"")
        if b"<inside>" in prompt:
            said = said.removeprefix(b"<think>\n")
        if b"boom" in prompt:
            raise RuntimeError("the executor broke")
        if b"nan please" in prompt:
            row[:] = np.nan
            return row
        whole = answer_to(prompt.decode()) if marker else b"!"
        if whole is None:
            row[b"ab "[len(said) % 3]] = 100
        else:
            row[whole[len(said)] if len(said) < len(whole) else END] = 100
        return row

    def close(self):
        pass


class FakeModel:
    """The parts of a model that the engine and the server look at."""

    architecture = "fake"
    reasoning = ("<think>", "</think>")
    strays = ()
    after_thought = "\n\n"
    call = QwenCalls()
    efforts = MappingProxyType({"minimal": "low"})
    blocks = 2
    context_length = TRAINED
    n_vocab = N_VOCAB
    template_source = "file"
    window = 0
    ring = 0
    pass_width = 64
    widest = 64
    projector = None
    prediction = None
    scored = 64
    estimate = Estimate(weights=0, rings=0, arena=0, per_position=0)
    quantum = 1
    eog = frozenset({END})
    embedding_length = 8
    n_params = 1000
    size_bytes = 4000
    file_type = "all F32"

    def __init__(self, path, slots, context):
        self.name = "fake"
        self.path = Path(path)
        self.seconds = 0.5
        self.tokenizer = FakeTokenizer()
        self.template = FakeTemplate()
        self.sampling = {}
        self.executor = FakeExecutor(slots, context)
        self.file = SimpleNamespace(
            fingerprint="of a fake",
            metadata={"tokenizer.ggml.model": "gpt2"},
            changed=lambda: False,
            lost=False,
        )
        self.closed = False

    def embedding(self):
        raise CannotEmbed("fake gives no vectors")

    def close(self):
        self.closed = True


def open_fake(server, plugins, progress) -> FakeModel:
    """Opens a model, once ``go`` is written to the pipe FAKE_PIPE where there is one.

    What is written to the pipe FAKE_RELEASE later opens the gate.
    """
    progress(0.25)
    pipe = os.environ.get("FAKE_PIPE")
    if pipe and Path(pipe).read_text() != "go":
        raise ValueError(f"{server.model}: this is no model:\nits first bytes are wrong")
    model = FakeModel(server.model, server.parallel, server.context // server.parallel)
    release = os.environ.get("FAKE_RELEASE")
    if release:

        def wait():
            Path(release).read_text()
            model.executor.allow(None)

        threading.Thread(target=wait, daemon=True).start()
    return model


class Control:
    """``/test/state`` and ``/test/allow``."""

    def __init__(self, service):
        self.service = service

    def on_get(self, req, resp):
        engine = self.service.engine
        executor = engine.model.executor
        resp.media = {
            "busy": engine.busy,
            "slots": [state.is_processing for state in engine.slots],
            "drawn": [state.n_decoded for state in engine.slots],
            "given_up": sum(answer.job.cancelled for answer in engine._seats.active),
            "stats": vars(engine.stats),
            "passes": executor.passes,
            "held_back": executor.waits,
            "threads": threading.active_count(),
            "status": Path("/proc/self/status").read_text(),
            "descriptors": len(os.listdir("/proc/self/fd")),
        }

    def on_post(self, req, resp):
        self.service.engine.model.executor.allow(json.loads(req.bounded_stream.read()))


def with_control(app: Application) -> Application:
    """The application with the routes of the tests."""
    app.falcon.add_route("/test/state", Control(app.service))
    return app


def create_app() -> Application:
    """For gunicorn."""
    configure()
    return with_control(wsgi.create_app(open_fake))


def configure() -> None:
    """What a test changes inside the process: FAKE_ and the name of a constant."""
    for module in (sse, edge, body):
        for name in vars(module):
            if name.isupper() and (given := os.environ.get(f"FAKE_{name}")):
                setattr(module, name, float(given))


def main() -> int:
    """For waitress: ``python -m tests.server.fake``."""
    configure()
    bound_arenas()
    server = Server(wsgi.create_app(open_fake))
    if most := os.environ.get("FAKE_CONNECTIONS"):
        server._server.adj.connection_limit = int(most)
    with_control(server.app)
    return server.run()


if __name__ == "__main__":
    sys.exit(main())
