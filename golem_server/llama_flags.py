"""llama-server's flags by golem's, for who comes from there: golem's spelling is the only one.

A flag of that name would be an alias to keep for ever; a refusal that tells the right one is read
once.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from golem_core.settings import LOOK

# golem's flag, and what it takes where its name does not tell: llama-server's names for it.
SAME: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "model": ("m",),
        "mmproj": ("mm",),
        "models": ("models-dir",),
        "alias": ("a",),
        "addr HOST:PORT": ("host", "port"),
        "context": ("c", "ctx-size"),
        "n": ("predict", "n-predict"),
        "parallel": ("np",),
        "threads": ("t", "tb", "threads-batch"),
        "pass-width": ("b", "batch-size", "ub", "ubatch-size"),
        "cache-type-k": ("ctk",),
        "cache-type-v": ("ctv",),
        "cache-ram": ("cram",),
        "checkpoints": ("ctx-checkpoints", "swa-checkpoints"),
        "draft-n": ("draft-max",),
        "rope-scale 1/F": ("rope-freq-scale",),
        "rope-original-context": ("yarn-orig-ctx",),
        "reasoning": ("reasoning-budget",),
        "system": ("sys", "system-prompt"),
        "seed": ("s",),
        "p": ("prompt",),
    }
)
# Why there is none: the names.
NONE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "not needed here: golem computes on the processor": (
            "ngl",
            "gpu-layers",
            "n-gpu-layers",
            "dev",
            "device",
            "sm",
            "split-mode",
            "ts",
            "tensor-split",
            "mg",
            "main-gpu",
        ),
        "not needed here: attention has one way, the processor's best": ("fa", "flash-attn"),
        "not needed here: the file's own template is always rendered as Jinja": ("jinja",),
        "not here: the template is the file's, or with -builtin-template the architecture's": (
            "chat-template",
            "chat-template-file",
        ),
        "not needed here: conversations always share passes": ("cb", "cont-batching"),
        "not needed here: always served": ("metrics", "slots", "props"),
        "not needed here: /v1/embeddings is always served; -embed names a model for it alone": (
            "embedding",
            "embeddings",
        ),
        "not here: golem downloads nothing; fetch the file and name it with -model": (
            "hf",
            "hfr",
            "hf-repo",
            "hff",
            "hf-file",
            "mu",
            "model-url",
        ),
        "not here: drafts need no second model, see -draft": ("md", "model-draft"),
        "not here: golem plays no adapters; merge them into the file": ("lora", "lora-scaled"),
        "no flag here: a request to the server names it, or else the model's file": (
            "s",
            "seed",
            "temp",
            "top-k",
            "top-p",
            "min-p",
            "samplers",
            "repeat-penalty",
            "presence-penalty",
            "frequency-penalty",
        ),
    }
)


def hints(flags: Iterable[str]) -> dict[str, str]:
    """For the names of llama-server that a program does not have, what it says instead.

    flags: of the program. Of what only another of golem's programs has, nothing is guessed.
    """
    known = set(flags)
    said = {name: why for why, names in NONE.items() for name in names}
    for flag, names in SAME.items():
        if flag.partition(" ")[0] in known:
            said |= {name: f"llama-server's -{name} is -{flag} here" for name in names}
        else:
            said = {name: LOOK for name in names} | said
    return {name: text for name, text in said.items() if name not in known}
