"""The built-in tasks, suites and recipes: YAML files, read when their name is used."""

from pathlib import Path

import emobench


@emobench.hookimpl
def emobench_tasks() -> Path:
    return Path(__file__).parent
