"""The tiny Laya checkpoints of tests/data and what laya 0.4.15 answered over them.

tiny-en: ModernBERT of 7 layers, byte-level BPE, the English checkpoint's temperatures. tiny-ml: 4
layers, metaspace BPE with byte fallback, the older spelling of the config.
"""

import gzip
import io
import json
import tarfile
from pathlib import Path

from tests.paths import data

NAMES = ("tiny-en", "tiny-ml")
# These name a checkpoint to laya-serve's router; golem serves one and routes nothing.
ROUTED = ("err_model_path", "err_task_unknown")


def unpack(name: str, folder: Path) -> Path:
    """The checkpoint's directory."""
    packed = gzip.decompress(data(f"laya/{name}.tar.gz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        # Python before 3.11.4 knows no filters; the archive is this repository's own.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder / name


def cases(name: str) -> list[dict]:
    """``name``, ``request`` or ``raw_body``, ``status``, ``response``, ``trace`` of each."""
    text = gzip.decompress(data(f"laya/{name}.oracle.json.gz").read_bytes())
    return [case for case in json.loads(text) if case["name"] not in ROUTED]


def body_of(case: dict) -> bytes:
    """What was sent."""
    if case.get("request") is None:
        return case["raw_body"].encode()
    return json.dumps(case["request"]).encode()


def assert_equal(found, expected, at="response"):
    """The same keys in the same order, texts equal, numbers within 2e-4."""
    if isinstance(expected, float):
        assert isinstance(found, float) and abs(found - expected) <= 2e-4, (at, found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected), at
        for key in expected:
            assert_equal(found[key], expected[key], f"{at}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), at
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_equal(one, other, f"{at}[{i}]")
    else:
        assert (type(found), found) == (type(expected), expected), at
