"""The shapes of well-known models, so that speed can be measured without their weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True)
class Shape:
    """A decoder's numbers, as its GGUF header gives them.

    vocabulary: tokens. tied: the head is the embedding. window: positions sliding blocks look
    back, 0 for none. experts, used, expert_width: of a mixture, 0 for a dense model. size: the
    label llama-bench shows.
    """

    architecture: str
    size: str
    width: int
    blocks: int
    heads: int
    kv_heads: int
    head_size: int
    feed_forward: int
    vocabulary: int
    tied: bool = True
    base: float = 1e6
    eps: float = 1e-6
    context: int = 40960
    window: int = 0
    experts: int = 0
    used: int = 0
    expert_width: int = 0
    rope_factors: bool = False
    pre: str = "qwen2"

    @property
    def values(self) -> list[int]:
        """The blocks that have a value projection."""
        return list(range(self.blocks))

    def cut(self, blocks: int) -> Self:
        """Its first blocks only: what is measured of it stays in proportion. Raises ValueError."""
        if not 1 <= blocks <= self.blocks:
            raise ValueError(f"--blocks {blocks}: a model of {self.size} has 1 to {self.blocks}")
        return replace(self, blocks=blocks, size=f"{self.size}, {blocks} blocks")


@dataclass(frozen=True)
class Gemma4Shape(Shape):
    """A decoder whose blocks are of two kinds. head_size, kv_heads: of full blocks.

    window_head, window_kv_heads: of sliding ones. period: every period-th block is full. shared:
    the last blocks, which own no keys and values; shared_feed_forward: their hidden width.
    per_block: width of the embedding that a token brings to every block. keys_as_values: full
    blocks have no value projection.
    """

    window_head: int = 256
    window_kv_heads: int = 1
    period: int = 6
    shared: int = 0
    shared_feed_forward: int = 0
    per_block: int = 0
    keys_as_values: bool = False

    @property
    def sliding(self) -> list[bool]:
        """Whether each block sees a window only."""
        return [(i + 1) % self.period != 0 for i in range(self.blocks)]

    def is_shared(self, block: int) -> bool:
        """Whether a block attends over the keys of an earlier one."""
        return block >= self.blocks - self.shared

    def cut(self, blocks: int) -> Self:
        fewer = super().cut(blocks)
        return replace(fewer, shared=max(0, blocks - (self.blocks - self.shared)))

    @property
    def values(self) -> list[int]:
        owned = range(self.blocks - self.shared)
        return [i for i in owned if self.sliding[i] or not self.keys_as_values]


@dataclass(frozen=True)
class Qwen35Shape(Shape):
    """A gated delta net: every period-th block attends, the others keep a matrix a head.

    delta_keys, delta_values: key and value heads of a delta net, of state elements each. taps: of
    its convolution. rotated: elements of an attention head that turn, in these sections.
    shared_width: of the expert that all columns share. prediction: blocks besides that guess ahead.
    """

    delta_keys: int = 16
    delta_values: int = 32
    state: int = 128
    taps: int = 4
    period: int = 4
    rotated: int = 64
    sections: tuple[int, int, int] = (11, 11, 10)
    shared_width: int = 0
    prediction: int = 0

    @property
    def inner(self) -> int:
        return self.delta_values * self.state

    @property
    def mixed(self) -> int:
        """Channels of the convolution."""
        return 2 * self.delta_keys * self.state + self.inner

    def attends(self, block: int) -> bool:
        return block >= self.blocks or (block + 1) % self.period == 0


_QWEN = 151936
_QWEN35 = 248320
_LLAMA3 = 128256
_GEMMA = 262144


def _llama3(size: str, *numbers: int, tied: bool) -> Shape:
    return Shape(
        "llama",
        size,
        *numbers,
        _LLAMA3,
        tied,
        base=5e5,
        eps=1e-5,
        context=131072,
        rope_factors=True,
        pre="llama-bpe",
    )


def _smollm2(size: str, *numbers: int, base: float = 1e5) -> Shape:
    return Shape("llama", size, *numbers, 49152, base=base, eps=1e-5, context=8192, pre="smollm")


def _gemma3(size: str, *numbers: int, window: int, context: int) -> Shape:
    return Shape("gemma3", size, *numbers, _GEMMA, window=window, context=context, pre="default")


def _gemma4(size: str, *numbers: int, window: int = 1024, **more) -> Gemma4Shape:
    """numbers: width, blocks, heads, key heads of full blocks, feed-forward."""
    width, blocks, heads, kv_heads, hidden = numbers
    context = 262144 if window == 1024 else 131072
    return Gemma4Shape(
        "gemma4", size, width, blocks, heads, kv_heads, 512, hidden, _GEMMA,
        window=window, context=context, pre="", **more,
    )  # fmt: skip


def _qwen35(size: str, *numbers: int, delta_values: int, **more) -> Qwen35Shape:
    """numbers: width, blocks, heads, key heads, feed-forward."""
    width, blocks, heads, kv_heads, hidden = numbers
    return Qwen35Shape(
        "qwen35moe" if "experts" in more else "qwen35", size, width, blocks, heads, kv_heads, 256,
        hidden, _QWEN35, tied=False, base=1e7, context=262144, pre="qwen35",
        delta_values=delta_values, **more,
    )  # fmt: skip


# width, blocks, heads, key heads, head size, feed-forward
SHAPES: dict[str, Shape] = {
    "qwen3-0.6b": Shape("qwen3", "0.6B", 1024, 28, 16, 8, 128, 3072, _QWEN),
    "qwen3-1.7b": Shape("qwen3", "1.7B", 2048, 28, 16, 8, 128, 6144, _QWEN),
    "qwen3-4b": Shape("qwen3", "4B", 2560, 36, 32, 8, 128, 9728, _QWEN),
    "qwen3-8b": Shape("qwen3", "8B", 4096, 36, 32, 8, 128, 12288, _QWEN, False),
    "qwen3-14b": Shape("qwen3", "14B", 5120, 40, 40, 8, 128, 17408, _QWEN, False),
    "qwen3-30b-a3b": Shape(
        "qwen3moe", "30B.A3B", 2048, 48, 32, 4, 128, 6144, _QWEN, False,
        experts=128, used=8, expert_width=768,
    ),
    "qwen35-9b": _qwen35("9B", 4096, 32, 16, 4, 12288, delta_values=32),
    "qwen35-27b": _qwen35("27B", 5120, 64, 24, 4, 17408, delta_values=48),
    "qwen35-35b-a3b": _qwen35(
        "35B.A3B", 2048, 40, 16, 2, 512, delta_values=32,
        experts=256, used=8, expert_width=512, shared_width=512,
    ),
    "smollm2-135m": _smollm2("135M", 576, 30, 9, 3, 64, 1536),
    "smollm2-360m": _smollm2("360M", 960, 32, 15, 5, 64, 2560),
    "smollm2-1.7b": _smollm2("1.7B", 2048, 24, 32, 32, 64, 8192, base=130000.0),
    "llama3.2-1b": _llama3("1B", 2048, 16, 32, 8, 64, 8192, tied=True),
    "llama3.2-3b": _llama3("3B", 3072, 28, 24, 8, 128, 8192, tied=True),
    "llama3.1-8b": _llama3("8B", 4096, 32, 32, 8, 128, 14336, tied=False),
    "gemma3-270m": _gemma3("270M", 640, 18, 4, 1, 256, 2048, window=512, context=32768),
    "gemma3-1b": _gemma3("1B", 1152, 26, 4, 1, 256, 6912, window=512, context=32768),
    "gemma3-4b": _gemma3("4B", 2560, 34, 8, 4, 256, 10240, window=1024, context=131072),
    "gemma3-12b": _gemma3("12B", 3840, 48, 16, 8, 256, 15360, window=1024, context=131072),
    "gemma4-e2b": _gemma4(
        "E2B", 1536, 35, 8, 1, 6144, window=512, window_kv_heads=1, period=5,
        shared=20, shared_feed_forward=12288, per_block=256,
    ),
    "gemma4-e4b": _gemma4(
        "E4B", 2560, 42, 8, 2, 10240, window=512, window_kv_heads=2,
        shared=18, shared_feed_forward=10240, per_block=256,
    ),
    "gemma4-12b": _gemma4("12B", 3840, 48, 16, 1, 15360, window_kv_heads=8, keys_as_values=True),
    "gemma4-26b-a4b": _gemma4(
        "26B.A4B", 2816, 30, 16, 2, 2112, window_kv_heads=8, keys_as_values=True,
        experts=128, used=8, expert_width=704,
    ),
    "gemma4-31b": _gemma4("31B", 5376, 60, 32, 4, 21504, window_kv_heads=16, keys_as_values=True),
}  # fmt: skip
