"""`emobench plan`: the seeds and examples that show a difference, with their cost, before anything runs."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from emobench import results
from emobench.cli import options
from emobench.cli.options.groups import takes_groups
from emobench.cli.options.request import TrainingOptions
from emobench.cli.terminal.console import print_json, print_out, print_table, reporter
from emobench.core.errors import ConfigError
from emobench.leaderboard.stats.classical import ALPHA, POWER
from emobench.leaderboard.stats.compare import place
from emobench.leaderboard.store import Leaderboard
from emobench.registry import find_suite
from emobench.report.notes import count_text
from emobench.report.numbers import ABSENT
from emobench.runs.dry_run import make_outline, time_parts
from emobench.runs.planning.estimate import duration
from emobench.runs.study import PILOT, plan_study


@takes_groups
def plan(
    training: TrainingOptions,
    detect: Annotated[
        float,
        typer.Option("--detect", help="The true difference to show: points of percentages, percent of perplexities."),
    ],
    suite: options.Suite = options.DEFAULT_SUITE,
    limit: options.Limit = None,
    metric: Annotated[str | None, typer.Option("--metric", help="Default: the primary endpoint.")] = None,
    like: Annotated[
        list[str] | None,
        typer.Option(
            "--like",
            help=f"The two entries whose noise is used. Default: the newest of this model, or of any. {options.ENTRY}",
        ),
    ] = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    probe: Annotated[bool, typer.Option("--probe", help="Time some steps and examples first.")] = False,
    json: options.Json = False,
) -> None:
    """Plan the seeds and examples that show a difference, with their cost.

    Each line finds a true difference of --detect with 80 % power at 5 %. The noise comes from two comparable entries
    with three seeds or more, such as a short pilot of the same suite; a plan needs such a pair on the board. Seeds and
    test examples are planned, but not the number of samples of each prompt. --probe measures time and no noise.
    """
    if not 0 < detect < float("inf"):
        raise ConfigError(f"--detect is {detect}; expected a difference above 0, such as 2 (points or percent).")
    named, patterns = None, [metric] if metric else []
    if not like:
        named = find_suite(suite).name
        stored = [row.suite for row in Leaderboard(leaderboard).rows()].count(named)
        if stored < 2:
            raise ConfigError(f"{leaderboard} has {stored} entries of the suite {named}. {PILOT}")
    compared = results.compare(
        *(like or ()), suite=named, metrics=patterns, older=not like, leaderboard=leaderboard, runs=training.runs
    )
    request = training.training(suite=suite, limit=limit, leaderboard=leaderboard)
    timed = partial(time_parts, reporter=reporter(json)) if probe else None
    study = plan_study(request, partial(make_outline, timed=timed), compared.comparisons, detect)
    pilot = study.pilot
    if json:
        noise = {"entries": [pilot.candidate, pilot.baseline], "seeds": pilot.seeds, "items": pilot.items}
        plain = {
            "metric": pilot.metric,
            "detect": detect,
            "target_power": POWER,
            "level": ALPHA,
            "noise": {**noise, **vars(pilot.noise)},
            "choices": study.choices,
        }
        print_json(plain)
        return
    rows = []
    for choice in study.choices:
        examples = "all" if choice.examples is None else f"{choice.examples:,}"
        seeds, trainings, time = "; ".join(choice.missing), ABSENT, ABSENT
        if choice.seeds is not None:
            seeds = count_text(choice.seeds, "seeds")
        if choice.trainings is not None:
            trainings = f"{choice.trainings:,}"
        if choice.seconds is not None:
            time = duration(choice.seconds)
        rows.append((examples, seeds, trainings, time))
    unit = {"fraction": "points", "perplexity": "%"}.get(pilot.unit, pilot.unit)
    title = f"To show a difference of {detect:g} {unit} of {pilot.metric} ({100 * POWER:.0f} % power)"
    print_table(title, ("examples", "seeds of each objective", "trainings", "rough time"), rows)
    print_out(
        "",
        f"Noise: {pilot.candidate} against {pilot.baseline}, {place(study.entry)}, {pilot.seeds} seeds. "
        "[95 % interval] of the seeds. Rough times, as a dry run gives them.",
    )
