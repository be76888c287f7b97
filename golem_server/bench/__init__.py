"""golem-bench: how fast a model reads prompts and draws, measured as llama-bench does.

Random weights of a real shape (``--random qwen3-4b:q4_0``) measure speed where no model is at
hand; ``--write FILE`` keeps them, so that another program can be measured on the same file.
"""

from golem_server.bench.command import main

__all__ = ["main"]
