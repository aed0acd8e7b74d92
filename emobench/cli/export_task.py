"""`emobench tasks export`: a task with retrieved shots, for users of lm-evaluation-harness."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.console import print_json, print_out, reporter
from emobench.config import parse_overrides
from emobench.models.device import resolve_device
from emobench.pipeline.inspect.export_task import export_task
from emobench.pipeline.planning.request import Request


def export(
    task: Annotated[str, typer.Argument(help="A task of kind icl, such as trec.", show_default=False)],
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The folder to write the YAML and the examples to.",
            show_default=False,
            callback=options.holdable,
        ),
    ],
    protocol: Annotated[
        str | None, typer.Option("--protocol", help="A protocol of the task. Default: its first protocol.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Change a setting icl.KEY=VALUE. Repeatable.")] = None,
    limit: options.Limit = None,
    data_dir: options.DataDirs = None,
    runs: options.Runs = options.DEFAULT_RUNS,
    offline: options.Offline = False,
    device: options.Device = options.DEFAULT_DEVICE,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a task for lm-evaluation-harness.

    The folder gets the YAML and the test examples, each with its own shots as text.
    """
    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
    request = Request(
        suite=task,
        settings=parse_overrides([*(set_ or ()), *([f"protocol={protocol}"] if protocol else ())]),
        limit=limit,
        data_dirs=tuple(data_dir or ()),
        runs=runs,
        offline=offline,
        device=resolve_device(device),
    )
    files = export_task(request, task, folder, reporter(quiet))
    if json:
        print_json({"files": [str(file) for file in files]})
        return
    print_out(
        *(f"Wrote {file}" for file in files),
        f"lm_eval run --model hf --model_args pretrained=MODEL --include_path {folder} --tasks {files[0].stem}",
    )
