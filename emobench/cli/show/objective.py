"""`emobench objectives show`: the facts of objectives, and a picture of what they teach."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.families import CALL, facts_of_call, print_facts
from emobench.cli.terminal.console import print_json, print_out, reporter
from emobench.core.errors import ConfigError
from emobench.registry.families import OBJECTIVES

DEFAULT_MODEL = "tiny-oracle"
"""It needs no download, and is pre-trained at first use."""


def show(
    name: Annotated[list[str], typer.Argument(help=CALL)],
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            help="Draw what the objectives teach, into FILE.svg, FILE.png or FILE.pdf: the weight of a target token "
            "over its probability and the entropy of the prediction, and the implied targets of three tokens. A weight "
            "of a sum that changes is that of the first step.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="With --plot: the model whose predictions are taken, an alias, a folder or a hub id. Default: "
            f"{DEFAULT_MODEL}, which is pre-trained at first use.",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            help="With --plot: the text with the three tokens, the least probable and two likelier ones.",
        ),
    ] = None,
    data_dir: options.DataDirs = None,
    runs: options.Runs = options.DEFAULT_RUNS,
    offline: options.Offline = False,
    json: options.Json = False,
) -> None:
    """Show objectives: their descriptions, their parameters, and where they come from.

    With --plot, also what they teach, compared with MLE. The gradients are those of the objectives' own losses.
    """
    shown = []
    for call in name:
        shown += facts_of_call(OBJECTIVES, call)
    if plot is None:
        if model is not None or text is not None:
            raise ConfigError("--model and --text choose the predictions of a picture; add --plot FILE.svg.")
        print_facts(shown, json)
        return
    from emobench.cli.options.request import LoadingOptions
    from emobench.report.charts.objective_chart import teaching_picture
    from emobench.report.charts.vega_lite import require_picture, write_picture
    from emobench.runs.inspect.teaching import teach
    from emobench.runs.planning.request import Request

    require_picture(plot, "--plot")
    loading = LoadingOptions(offline=offline, device="cpu").loading()
    request = Request(suite=options.DEFAULT_SUITE, data_dirs=tuple(data_dir or ()), runs=runs, **loading)
    teaching = teach(name, model or DEFAULT_MODEL, text, request, reporter(json))
    write_picture(teaching_picture(teaching.weights, teaching.targets), plot)
    if json:
        print_json({"objectives": shown, "picture": str(plot), **teaching._asdict()})
        return
    print_facts(shown, json)
    print_out("", str(plot))
