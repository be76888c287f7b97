"""What every op means: its operands, the shape it makes, its formula, who uses it.

The classes here are mixins of the builder: an op is a method that checks its operands where the
author wrote it and appends a node. Everything is f32 in, f32 out, accumulated in f32 unless said.
An op that is row-wise reads only its own row, so picking rows may move before it. ``OPS`` lists
them; the executors are tested against golem_core.reference op by op.
"""

from golem_core.graph.ops.attention import AttentionOps, Rope
from golem_core.graph.ops.catalogue import OPS, Op
from golem_core.graph.ops.elementwise import PEAK_CHUNK, PEAK_LANES, UNARY, ElementwiseOps
from golem_core.graph.ops.pictures import PictureOps
from golem_core.graph.ops.products import ProductOps, RowOps
from golem_core.graph.ops.recurrent import RecurrentOps
from golem_core.graph.ops.views import ViewOps

__all__ = [
    "OPS",
    "PEAK_CHUNK",
    "PEAK_LANES",
    "UNARY",
    "AttentionOps",
    "ElementwiseOps",
    "Op",
    "PictureOps",
    "ProductOps",
    "RecurrentOps",
    "Rope",
    "RowOps",
    "ViewOps",
]
