"""A built llama.cpp in a folder, as ref/build_peer.py leaves it, and its programs as functions.

Everything here starts one of the peer's own programs; nothing of it is linked into golem.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MANIFEST = "peer.json"
NEEDED = {"name", "package", "bin"}  # of what it says


class PeerError(RuntimeError):
    """A program of the peer is missing or failed; the text holds the end of what it printed."""


@dataclass(frozen=True)
class Peer:
    """The programs under ``folder``; ``describe`` is what peer.json says about the build."""

    folder: Path
    describe: dict

    @classmethod
    def open(cls, folder: str | os.PathLike) -> Peer:
        """The peer that ``python -m ref.build_peer FOLDER`` built."""
        folder = Path(folder)
        manifest = folder / MANIFEST
        if not manifest.exists():
            raise PeerError(
                f"{manifest} is missing; build the peer first: python -m ref.build_peer {folder}"
            )
        try:
            describe = json.loads(manifest.read_text())
        except (OSError, ValueError):
            describe = None
        if not isinstance(describe, dict) or NEEDED - describe.keys():
            raise PeerError(f"{manifest} does not describe a peer; build it anew")
        return cls(folder, describe)

    def program(self, name: str) -> Path:
        """Path of one of the built programs, such as ``llama-bench``."""
        path = self.folder / self.describe["bin"] / name
        if not path.exists():
            raise PeerError(f"{path} is missing; the peer was built without {name}")
        return path

    def run(self, name: str, *arguments) -> subprocess.CompletedProcess:
        """Run a program to its end; PeerError when it fails."""
        command = [str(self.program(name)), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            tail = (done.stdout + done.stderr)[-2000:]
            raise PeerError(f"{' '.join(command)} ended with {done.returncode}:\n{tail}")
        return done

    def logits(
        self,
        model: Path,
        ids: np.ndarray,
        out: Path,
        *,
        threads: int = 2,
        width: int = 512,
        flash: str = "auto",
        kv: str = "f16",
        repack: bool = True,
    ) -> np.ndarray:
        """Logits after each id, f32 (ids, vocabulary), memory-mapped from ``out``.

        ``width`` is the micro-batch: 512 reads the text as a prompt, 1 draws it. ``flash`` is
        auto, on or off; ``kv`` the cache's type; ``repack=False`` keeps the plain kernels.
        """
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "ids.i32"
            np.asarray(ids, "<i4").tofile(source)
            flags = ["--threads", threads, "--ubatch", width, "--flash", flash, "--kv", kv]
            if not repack:
                flags.append("--no-repack")
            self.run("peer_logits", model, source, out, *flags)
        return np.memmap(out, "<f4", "r").reshape(len(ids), -1)

    def quantise(self, source: Path, target: Path, kind: str, *flags: str) -> Path:
        """Write ``source`` in the file type ``kind``, requantising what is quantised already.

        Without flags llama-quantize follows its recipe, which keeps some tensors finer than the
        type; ``--pure`` gives it to every matrix whose rows fit.
        """
        self.run("llama-quantize", "--allow-requantize", *flags, source, target, kind)
        return target
