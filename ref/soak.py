"""The soak under the name it is asked for by: ``python ref/soak.py --minutes 10``.

What it does is benchmarks/soak.py's to say.
"""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    runpy.run_module("benchmarks.soak", run_name="__main__")
