"""Which block type each tensor of a quantised file has: the choices llama-quantize makes.

A file called Q4_K_M is no uniform Q4_K: some tensors get more bits, a head gets Q6_K, rows that no
block divides fall back. A random model is only as fast as the real one if it does the same.
"""

from __future__ import annotations

from golem_core.formats.blocks import BlockType, by_name
from golem_server.bench.shapes import Shape

# name: (general.file_type, type of most matrices)
MIXTURES: dict[str, tuple[int, str]] = {
    "F32": (0, "F32"),
    "F16": (1, "F16"),
    "BF16": (32, "BF16"),
    "Q4_0": (2, "Q4_0"),
    "Q4_1": (3, "Q4_1"),
    "Q5_0": (8, "Q5_0"),
    "Q5_1": (9, "Q5_1"),
    "Q8_0": (7, "Q8_0"),
    "Q2_K": (10, "Q2_K"),
    "Q3_K_M": (12, "Q3_K"),
    "Q4_K_S": (14, "Q4_K"),
    "Q4_K_M": (15, "Q4_K"),
    "Q5_K_S": (16, "Q5_K"),
    "Q5_K_M": (17, "Q5_K"),
    "Q6_K": (18, "Q6_K"),
    "IQ4_NL": (25, "IQ4_NL"),
    "IQ4_XS": (30, "IQ4_XS"),
    "TQ1_0": (36, "TQ1_0"),
    "TQ2_0": (37, "TQ2_0"),
    "MXFP4_MOE": (38, "MXFP4"),
    "Q1_0": (40, "Q1_0"),
    "Q2_0": (41, "Q2_0"),
    "PQ2_0": (141, "PQ2_0"),
    "PTQ1_0": (143, "PTQ1_0"),
}
_FALLBACKS = {
    "Q2_K": "Q4_0",
    "Q3_K": "Q4_0",
    "IQ4_XS": "IQ4_NL",
    "TQ1_0": "Q4_0",
    "TQ2_0": "Q4_0",
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}
_UNQUANTISED = ("F32", "F16", "BF16")
_VALUES = ("attn_v", "attn_qkv")
_TABLES = ("token_embd", "per_layer_token_embd")
_TERNARY = ("TQ1_0", "TQ2_0", "Q2_0")
PRISM = ("PQ2_0", "PTQ1_0")  # every matrix is ternary, but for the smallest


def type_of(mixture: str, shape: Shape, name: str, width: int, block: int = 0) -> BlockType:
    """The type of matrix ``name`` ("attn_v", "ffn_down", "token_embd"…) of rows of width weights.

    mixture: a name of MIXTURES. block: the number of its block.
    """
    chosen = _wanted(mixture, shape, name, width, block)
    while width % by_name(chosen).weights:
        chosen = _FALLBACKS.get(chosen, "F16")
    return by_name(chosen)


def _wanted(mixture: str, shape: Shape, name: str, width: int, block: int) -> str:
    main = MIXTURES[mixture][1]
    if name in ("ffn_gate_inp", "ssm_conv1d"):
        return "F32"
    if main in _UNQUANTISED:
        return main
    if mixture in PRISM:
        return "BF16" if name in ("ssm_alpha", "ssm_beta") else main
    if name == "per_layer_model_proj":
        return "BF16"  # it is left as it was published
    if mixture == "MXFP4_MOE":
        return main if name.endswith("_exps") else "Q8_0"
    if name == "output" or (shape.tied and name in _TABLES):
        return main if main == "Q8_0" else "Q8_0" if width % 256 else "Q6_K"
    if name == "token_embd":
        return "Q4_K" if mixture in _TERNARY else main
    part = name.removesuffix("_exps").removesuffix("_shexp")
    if shape.experts == 8:
        if part in ("attn_k", *_VALUES) and main != "Q8_0":
            return "Q8_0"
        if part == "attn_output" and main in ("Q2_K", "Q3_K", "Q4_K", "IQ4_NL", "IQ4_XS"):
            return "Q5_K"
    return _upgraded(mixture, main, shape, part, block)


def _upgraded(mixture: str, main: str, shape: Shape, part: str, block: int) -> str:
    """More bits where a K mixture spends them: on values, on the way down, on the output."""
    value, down = part in _VALUES, part == "ffn_down"
    count = shape.blocks
    if value:  # they are counted by themselves
        block, count = shape.values.index(block), len(shape.values)
    eighth = count // 8
    more = block < eighth or block >= 7 * count // 8 or (block - eighth) % 3 == 2
    grouped = shape.heads // shape.kv_heads >= 4
    match mixture:
        case "Q4_K_M" | "Q5_K_M":
            return "Q6_K" if (value or down) and more else main
        case "Q4_K_S":
            early = (value and block < 4) or (down and block < eighth)
            return "Q5_K" if early else main
        case "Q3_K_M":
            if value:
                return "Q5_K" if block < 2 else "Q4_K"
            if down:
                return "Q5_K" if block < shape.blocks // 16 else "Q4_K"
            return "Q4_K" if part == "attn_output" else main
        case "Q2_K":
            if value:
                return "Q4_K" if grouped else "Q3_K"
            return "Q3_K" if down or part == "attn_output" else main
        case "IQ4_NL" | "IQ4_XS":
            better = (value and grouped) or (down and block < eighth)
            return "Q5_K" if better else main
    return main
