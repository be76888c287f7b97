"""Quantised blocks: the table of types, and numpy code that decodes, encodes and invents them."""

from golem_core.formats.blocks.decode import dequantise
from golem_core.formats.blocks.encode import quantise
from golem_core.formats.blocks.invent import random_blocks
from golem_core.formats.blocks.types import TYPES, BlockType, by_id, by_name

__all__ = [
    "TYPES",
    "BlockType",
    "by_id",
    "by_name",
    "dequantise",
    "quantise",
    "random_blocks",
]
