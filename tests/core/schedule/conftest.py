"""The tiny models of the plugins' tests."""

from tests.plugins.conftest import tiny_model

__all__ = ["tiny_model"]
