"""``python -m golem_server.bench`` is golem-bench."""

import sys

from golem_server import commands

sys.exit(commands.bench())
