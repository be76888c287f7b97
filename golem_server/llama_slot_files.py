"""Saving a slot to a file and taking it back: what llama-server's route asks of whoever does it."""

from typing import Any, Protocol

from golem_core.schedule import Engine

LONGEST = 255  # bytes of a file's name
_FORBIDDEN = frozenset(':*?"<>|/\\\uff0e\u2215\u2216\ufffd\ufeff')


class SlotFiles(Protocol):
    """Keeps slots in files of one folder.

    Both methods are called with a name that ``valid_name`` takes, and return the members of
    llama-server's answer besides ``id_slot`` and ``filename``, or None while the slot is busy:
    they are called again when it is idle. They raise Refusal with llama-server's texts; a slot
    whose restoring failed is empty.
    """

    def save(self, engine: Engine, slot: int, name: str) -> dict[str, Any] | None:
        """``n_saved`` tokens, ``n_written`` bytes, ``timings`` with ``save_ms``."""

    def restore(self, engine: Engine, slot: int, name: str) -> dict[str, Any] | None:
        """``n_restored`` tokens, ``n_read`` bytes, ``timings`` with ``restore_ms``."""


def valid_name(name: str) -> bool:
    """Whether a text names a file of the folder itself, on any system, by llama-server's rule."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return False
    return (
        1 <= size <= LONGEST
        and name != "."
        and ".." not in name
        and not name.startswith(" ")
        and not name.endswith((" ", "."))
        and not any(c in _FORBIDDEN or ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in name)
    )
