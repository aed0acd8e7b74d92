"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from emobench.cli.console import stdout_for_json_alone
from emobench.errors import ConfigError
from emobench.models.device import AUTO

LONGEST_NAME, LONGEST_PATH = 255, 4095
"""Bytes of a file's name, and of a path, on the file systems there are."""


def holdable(value: Path | list[Path] | None) -> Path | list[Path] | None:
    """Refuse a path whose name no disk holds, before anything looks for it."""
    for path in value if isinstance(value, list) else [value] if value is not None else []:
        longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
        if longest > LONGEST_NAME or len(os.fsencode(path)) > LONGEST_PATH:
            raise ConfigError(
                f"{path}: a name in it has {longest:,} bytes; expected {LONGEST_NAME} at most, and at most "
                f"{LONGEST_PATH:,} in a path."
            )
    return value


def json_alone(context: typer.Context, value: bool) -> bool:
    """Keep stdout for the document, as long as the command runs."""
    if value and not context.resilient_parsing:
        context.with_resource(stdout_for_json_alone())
    return value


Objectives = Annotated[
    list[str] | None,
    typer.Option(
        "--objective",
        help='A name, "name(key=value)", ./file.py:Class, or "0.5*name + linear(1, 0)*other". Repeatable. '
        "Default: the suite's own.",
    ),
]
Model = Annotated[
    str | None, typer.Option("--model", help="An alias, a local folder, or a hub id. Default: the suite's own.")
]
Suite = Annotated[str, typer.Option("--suite", help="What is trained and evaluated: see `emobench suites list`.")]
Seeds = Annotated[list[int] | None, typer.Option("--seed", help="Training seed. Repeatable. Default: the suite's own.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="KEY=VALUE for objective.*, recipe.*, generation.*, mauve.*, oracle.*, coherence.*, surrogate.*, icl.*, "
        "lm_eval.*, tasks, corpus, protocol.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", help="Evaluation examples at most: prompts, texts, and blocks of PPL_test. Makes another protocol."
    ),
]
DataDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--data-dir",
        help="A folder with <corpus>.<split>.jsonl, used before any download. Repeatable.",
        callback=holdable,
    ),
]
Runs = Annotated[Path, typer.Option("--runs", help="Where finished stages are kept.", callback=holdable)]
Board = Annotated[Path, typer.Option("--leaderboard", help="Where entries are recorded.", callback=holdable)]
Offline = Annotated[bool, typer.Option("--offline", help="Use what is on disk; never the network.")]
Device = Annotated[
    str, typer.Option("--device", help="auto (a GPU where there is one, else the CPU), cpu, cuda or cuda:N.")
]
Dtype = Annotated[
    str, typer.Option("--dtype", help="Precision that weights are loaded in: float32, bfloat16, float16.")
]
FromScratch = Annotated[bool, typer.Option("--from-scratch", help="Draw the weights from the model's configuration.")]
RemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code", help="Execute code that comes with a hub model, or with a folder of lm_eval.include."
    ),
]
Trackers = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        help="A tracker of transformers' `report_to`. Repeatable. tensorboard writes below --runs. Default: none.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan, and what is finished, and stop.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.", callback=json_alone)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]

DEFAULT_DEVICE = AUTO
DEFAULT_SUITE = "oracle-language"
DEFAULT_RUNS = Path("runs")
DEFAULT_BOARD = Path("leaderboards/measured")
