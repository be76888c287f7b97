"""The tensors of a safetensors checkpoint as programs take them: views of the map, by name.

Floats of a checkpoint are block types with one weight a block, so a matrix of a Hugging Face file
is used like one of a GGUF file, and is repacked by the same executor.
"""

from __future__ import annotations

import numpy as np

from golem_core.formats.blocks import by_name
from golem_core.formats.gguf import Tensor
from golem_core.formats.safetensors import Safetensors
from golem_core.model.errors import ModelError
from golem_core.model.tensors import Tensors

FLOATS = ("F32", "F16", "BF16")


def checkpoint_tensors(checkpoint: Safetensors, *, widen: bool = False) -> Tensors:
    """Every tensor of an open checkpoint, by its own name. Raises ModelError for other dtypes.

    widen: BF16 as F32, a copy twice the size. Executors round the columns that meet BF16 weights
    to BF16 where the processor multiplies such pairs; what must be exact in f32 does not want that.
    """
    found = {}
    for name, tensor in checkpoint.tensors.items():
        if tensor.dtype not in FLOATS:
            raise ModelError(
                f"{checkpoint.path}: tensor {name} is {tensor.dtype}; {', '.join(FLOATS)} are read"
            )
        shape = tensor.shape or (1,)
        wide = widen and tensor.dtype == "BF16"
        array = tensor.numpy() if wide else tensor.data
        data = array.reshape(shape).view(np.uint8)
        found[name] = Tensor(name, shape, by_name("F32" if wide else tensor.dtype), data)
    return Tensors(found)
