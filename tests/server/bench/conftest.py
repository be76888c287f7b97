"""The tiny models of the plugins' tests."""

from tests.plugins.conftest import oracle, tiny_model

__all__ = ["oracle", "tiny_model"]
