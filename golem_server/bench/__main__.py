"""``python -m golem_server.bench`` is golem-bench."""

import sys

from golem_server.bench.command import main

sys.exit(main())
