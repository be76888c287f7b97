"""The engine: formats, programs, executors, state, text, sampling, scheduling. No HTTP here.

``golem_core.open(path)`` opens a chat model to draw from (golem_core/api.py). Importing this
package imports nothing else and starts no thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from golem_core.api import open

__all__ = ["open"]


def __getattr__(name: str):
    if name == "open":
        from golem_core.api import open

        return open
    raise AttributeError(f"module 'golem_core' has no attribute {name!r}")
