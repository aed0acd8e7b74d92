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
        help='The training objective: a name, "name(key=value)", ./file.py:Class, or a sum such as '
        '"0.5*emo + 0.5*mle". Repeatable. Default: those of the suite.',
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="The model to train: an alias (`emobench models list`), a local folder, or a Hugging Face "
        "id. Default: that of the suite.",
    ),
]
Suite = Annotated[
    str, typer.Option("--suite", help="The suite: what is trained and evaluated. `emobench suites list` names them.")
]
Seeds = Annotated[
    list[int] | None, typer.Option("--seed", help="A training seed. Repeatable. Default: those of the suite.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a setting: KEY=VALUE. Keys: objective.*, recipe.*, generation.*, mauve.*, "
        "oracle.*, coherence.*, surrogate.*, icl.*, lm_eval.*, tasks, corpus, protocol. "
        "Repeatable.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        help="The largest number of evaluation examples: prompts, texts, and blocks of PPL_test. This "
        "makes another protocol.",
    ),
]
DataDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--data-dir",
        help="A folder with your data, as <corpus>.<split>.jsonl. It is used instead of a download. Repeatable.",
        callback=holdable,
    ),
]
Runs = Annotated[Path, typer.Option("--runs", help="The folder of finished stages.", callback=holdable)]
Board = Annotated[Path, typer.Option("--leaderboard", help="The folder of recorded entries.", callback=holdable)]
Offline = Annotated[bool, typer.Option("--offline", help="Use only what is on disk, and no network.")]
Device = Annotated[
    str, typer.Option("--device", help="auto (a GPU if there is one, else the CPU), cpu, cuda or cuda:N.")
]
Dtype = Annotated[str, typer.Option("--dtype", help="The data type of the weights: float32, bfloat16 or float16.")]
FromScratch = Annotated[
    bool, typer.Option("--from-scratch", help="Train from random weights, with the model's configuration.")
]
RemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code", help="Allow Python code of a hub model, or of the folder lm_eval.include, to run."
    ),
]
Trackers = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        help="Log the training with a tracker of transformers' `report_to`. Repeatable. tensorboard "
        "writes to a folder in --runs. Default: none.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan, its cost and what is finished, and stop.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.", callback=json_alone)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress on stderr.")]

DEFAULT_DEVICE = AUTO
DEFAULT_SUITE = "oracle-language"
DEFAULT_RUNS = Path("runs")
DEFAULT_BOARD = Path("leaderboards/measured")
