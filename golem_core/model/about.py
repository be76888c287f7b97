"""What a header alone tells of a model file, and whether golem could play it.

For lists of models: nothing is loaded, and a file that cannot be read is an entry with a reason.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from golem_core.formats.gguf import GGUF
from golem_core.model.memory import estimate_program
from golem_core.model.open import open_program, slot_context
from golem_core.plugins import Plugins, load_plugins
from golem_core.text.tokenizer import KINDS


@dataclass(frozen=True)
class About:
    """A model file as its header tells it.

    quantisation: the type of most tensors that are not vectors. parameters: as the file calls its
    size, or counted: "135M". embedding, context: width and trained positions, 0 where unknown.
    template: of conversations, "" without one. reason: why golem cannot play it, "" when it can.
    """

    architecture: str = ""
    quantisation: str = ""
    parameters: str = ""
    size: int = 0
    embedding: int = 0
    context: int = 0
    template: str = ""
    reason: str = ""


def about(path: Path, plugins: Plugins | None = None) -> About:
    """Read the header of a GGUF file; never raises for what the file holds."""
    try:
        with GGUF.open(path) as file:
            return _of(file, load_plugins() if plugins is None else plugins)
    except (ValueError, OSError) as error:
        return About(reason=" ".join(str(error).split()))


def _of(file: GGUF, plugins: Plugins) -> About:
    metadata = file.metadata
    architecture = metadata.get("general.architecture")
    architecture = architecture if isinstance(architecture, str) else ""
    known = {
        "architecture": architecture,
        "quantisation": _quantisation(file),
        "parameters": _parameters(file),
        "size": sum(path.stat().st_size for path in file.paths),
        "embedding": _whole(metadata.get(f"{architecture}.embedding_length")),
        "context": _whole(metadata.get(f"{architecture}.context_length")),
    }
    template = metadata.get("tokenizer.chat_template")
    known["template"] = template if isinstance(template, str) else ""
    return About(**known, reason=why_not(file, plugins))


def why_not(file: GGUF, plugins: Plugins | None = None) -> str:
    """Why golem cannot play an open file as a chat model, in one line; empty when it can."""
    try:
        plugins = load_plugins() if plugins is None else plugins
        decoder, program = open_program(file, plugins)
        estimate_program(program, 1, slot_context(decoder, 64, 1), 64)
        kind = file.metadata.get("tokenizer.ggml.model")
        if kind not in KINDS:
            return f"{file.path}: tokenizer.ggml.model is {kind!r}; golem knows {', '.join(KINDS)}"
    except ValueError as error:
        return " ".join(str(error).split())
    return ""


def _quantisation(file: GGUF) -> str:
    count = Counter(t.type.name for t in file.tensors.values() if len(t.shape) > 1)
    packed = {name: n for name, n in count.items() if name != "F32"} or count
    return max(packed, key=packed.__getitem__) if packed else ""


def _parameters(file: GGUF) -> str:
    label = file.metadata.get("general.size_label")
    if isinstance(label, str) and label:
        return label[:32]
    count = file.n_params
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.0f}M"


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
