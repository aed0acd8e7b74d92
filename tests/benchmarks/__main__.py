"""Run one benchmark: `python tests/benchmarks speed.linear_loss OPTIONS`. Without a name, list them."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
NAMES = sorted(
    f"{path.parent.name}.{path.stem}" for path in FOLDER.glob("*/*.py") if "def main(" in path.read_text("utf-8")
)

if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
    sys.exit("Give the name of a benchmark, one of:\n  " + "\n  ".join(NAMES))
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
