"""Saving a slot to a file of ``-slot-save-path`` and taking it back, as llama-server answers it."""

import time
from pathlib import Path
from typing import Any

from golem_core.schedule import Engine
from golem_core.state.slotfile import SlotFileError
from golem_server.errors import Refusal

LONGEST = 255  # bytes of a file's name
_FORBIDDEN = frozenset(':*?"<>|/\\\uff0e\u2215\u2216\ufffd\ufeff')


class SlotFiles:
    """The files of one folder.

    Both methods take a name that ``valid_name`` takes and return the members of llama-server's
    answer besides ``id_slot`` and ``filename``, or None while the slot is busy. A slot whose
    restoring failed is empty.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def save(self, engine: Engine, slot: int, name: str) -> dict[str, Any] | None:
        """``n_saved`` tokens, ``n_written`` bytes, ``timings`` with ``save_ms``.

        Raises:
            Refusal: 500 when the file cannot be written.
        """
        began = time.perf_counter()
        try:
            done = engine.save(slot, self.folder / name, wait=False)
        except OSError as error:
            raise Refusal(f"Unable to save slot: {_why(error)}", "server_error") from None
        return done and {
            "n_saved": done[0],
            "n_written": done[1],
            "timings": {"save_ms": _ms_since(began)},
        }

    def restore(self, engine: Engine, slot: int, name: str) -> dict[str, Any] | None:
        """``n_restored`` tokens, ``n_read`` bytes, ``timings`` with ``restore_ms``.

        Raises:
            Refusal: 400 with what is wrong with the file.
        """
        began = time.perf_counter()
        try:
            done = engine.restore(slot, self.folder / name, wait=False)
        except (SlotFileError, OSError) as error:
            raise Refusal(f"Unable to restore slot: {_why(error)}") from None
        return done and {
            "n_restored": done[0],
            "n_read": done[1],
            "timings": {"restore_ms": _ms_since(began)},
        }


def _why(error: Exception) -> str:
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)


def _ms_since(began: float) -> float:
    return round((time.perf_counter() - began) * 1e3, 3)


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
