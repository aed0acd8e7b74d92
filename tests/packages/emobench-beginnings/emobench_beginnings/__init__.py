"""The tasks of kind `beginnings`."""

from pathlib import Path

import emobench


@emobench.hookimpl
def emobench_tasks() -> Path:
    return Path(__file__).parent / "data"
