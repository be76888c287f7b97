"""The table of block types: how many weights and bytes a block has, by GGML's number and name.

A row of weights is stored as consecutive blocks; a block holds a few codes and the scales they
share. The numbers are the ones a GGUF file writes beside each tensor.
"""

from dataclasses import dataclass

from golem_core.formats.errors import FormatError


@dataclass(frozen=True, slots=True)
class BlockType:
    """One layout of quantised weights.

    ``id`` is GGML's number, ``name`` GGUF's spelling ("Q4_0"), ``weights`` and ``bytes`` the size
    of a block.
    """

    id: int
    name: str
    weights: int
    bytes: int

    def row_bytes(self, n: int) -> int:
        """Bytes of a row of ``n`` weights; ``ValueError`` when ``n`` is no multiple of a block."""
        if n % self.weights:
            raise ValueError(
                f"a row of {n} weights cannot be {self.name}: its blocks hold {self.weights}"
            )
        return n // self.weights * self.bytes

    def row_weights(self, n: int) -> int:
        """Weights in a row of ``n`` bytes; ``ValueError`` when ``n`` is no multiple of a block."""
        if n % self.bytes:
            raise ValueError(
                f"a row of {n} bytes cannot be {self.name}: its blocks take {self.bytes}"
            )
        return n // self.bytes * self.weights

    def __str__(self) -> str:
        return self.name


TYPES: dict[int, BlockType] = {
    id: BlockType(id, name, weights, size)
    for id, name, weights, size in (
        (0, "F32", 1, 4),
        (1, "F16", 1, 2),
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (20, "IQ4_NL", 32, 18),
        (23, "IQ4_XS", 256, 136),
        (30, "BF16", 1, 2),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
        (41, "Q1_0", 128, 18),
        (42, "Q2_0", 64, 18),
        (142, "PQ2_0", 128, 34),
        (143, "PTQ1_0", 128, 28),
    )
}

_BY_NAME = {type.name: type for type in TYPES.values()}

# Numbers GGML knows and golem does not read, so that a refusal can name them.
_FOREIGN = {
    4: "Q4_2",
    5: "Q4_3",
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    21: "IQ3_S",
    22: "IQ2_S",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
    40: "NVFP4",
}


def by_id(id: int) -> BlockType:
    """The type of a GGML number; ``FormatError`` names an unknown one and lists the known."""
    try:
        return TYPES[id]
    except KeyError:
        label = f"{_FOREIGN[id]} ({id})" if id in _FOREIGN else f"number {id}"
        raise FormatError(f"block type {label} is not supported; {_known()}") from None


def by_name(name: str) -> BlockType:
    """The type of a name, in any case; ``FormatError`` lists the known ones."""
    try:
        return _BY_NAME[name.upper()]
    except KeyError:
        raise FormatError(f"block type {name[:40]!r} is not supported; {_known()}") from None


def resolve(type: "BlockType | str") -> BlockType:
    """A type given as itself or by its name."""
    return type if isinstance(type, BlockType) else by_name(type)


def _known() -> str:
    return "known are " + " ".join(_BY_NAME)
