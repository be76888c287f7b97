"""Names of models as Ollama writes them: ``[host/][namespace/]model[:tag]``."""

import re

_DEFAULTS = ("registry.ollama.ai", "library")
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,79}"
_NAME = re.compile(
    rf"(?:(?P<host>[A-Za-z0-9_][A-Za-z0-9_.:\-]{{0,349}})/(?=[^/]+/))?"
    rf"(?:(?P<namespace>{_PART})/)?(?P<model>{_PART})(?::(?P<tag>{_PART}))?",
    re.ASCII,
)


def canonical(name: str) -> str | None:
    """The one spelling of a name: lower case, with its tag, without the parts that are Ollama's
    defaults; None when it is no name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    host, namespace, model, tag = match.group("host", "namespace", "model", "tag")
    parts = [host or _DEFAULTS[0], namespace or _DEFAULTS[1]]
    if parts[0].lower() == _DEFAULTS[0]:
        parts = [] if parts[1].lower() == _DEFAULTS[1] else parts[1:]
    return "/".join([*parts, f"{model}:{tag or 'latest'}"]).lower()


def tagged(name: str) -> str:
    """A name with its tag, as it is shown."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
