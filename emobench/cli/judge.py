"""`emobench judge`: which of several models answers better, by a judge of their responses."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.terminal.console import print_json, print_lines, print_out, print_table, reporter
from emobench.core.settings import parse_overrides
from emobench.models.device import resolve_device
from emobench.report.notes import DUELS
from emobench.runs.inspect.recorded_runs import newest_of
from emobench.runs.inspect.samples import (
    compared,
    expected_judging,
    has_texts,
    headings,
    judge_tables,
    judged_pairs,
)


def judge(
    entry: options.Entries,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="judge.name=NAME, and other settings of judge.* (`emobench settings judge`)."),
    ] = None,
    task: options.Tasks = None,
    seed: options.Seed = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="The largest number of instructions. Default: all.")
    ] = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    device: options.Device = options.DEFAULT_DEVICE,
    offline: options.Offline = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Judge the kept responses of entries against each other.

    Each pair of entries is compared on every instruction that all have answered, in both orders. The tables have wins,
    ties, losses and win rates, and ratings by Bradley and Terry. Replies are kept in --runs: a command that is given
    again only asks for missing ones. --dry-run sends no request, and shows the numbers of requests and tokens.
    """
    rule = judged_pairs().rule_of(parse_overrides(set_ or ()))
    entries, notes = newest_of(entry, leaderboard, lambda one: has_texts(one, runs, task or (), seed))
    tables = compared(entries, runs, task or (), seed, limit)
    if dry_run:
        expected = expected_judging(rule, tables, runs, offline=offline)
        if json:
            print_json({"judging": expected})
            return
        rows = []
        for one in expected:
            counts = (one.pairs, one.kept, one.requests, one.tokens_read, one.tokens_written)
            rows.append([one.task, *map("{:,}".format, counts)])
        header = ("task", "pairs", "kept replies", "requests", "tokens read", "tokens written")
        print_table(f"{expected[0].judge}, answered by {expected[0].model}: no request was sent", header, rows)
        print_out(
            "", "Tokens are estimates: from the length of the prompts, and the largest number that can be written."
        )
        return
    outcomes = judge_tables(rule, tables, runs, reporter(quiet), device=resolve_device(device), offline=offline)
    if json:
        print_json({"judged": outcomes})
        return
    print_lines(*notes)
    for outcome in outcomes:
        _print(outcome)


def _print(outcome: Any) -> None:
    names = headings(outcome.writers)
    rows = []
    for duel in outcome.duels:
        counts = map(str, (duel.wins, duel.ties, duel.losses))
        interval = "{:.1%} to {:.1%}".format(*duel.ci95)
        rows.append([names[duel.first], names[duel.second], *counts, f"{duel.win_rate:.1%}", interval])
    header = ("entry", "against", "wins", "ties", "losses", "win rate", "95 % interval")
    title = f"{outcome.task}: {outcome.judge}, answered by {outcome.model}, {outcome.instructions} instructions"
    print_table(title, header, rows)
    rated = []
    for name, one in zip(names, outcome.ratings, strict=True):
        rated.append([name, "-", "-"])
        if one.rating is not None:
            rated[-1] = [name, f"{one.rating:.0f}", "{:.0f} to {:.0f}".format(*one.ci95)]
    print_out("")
    print_table("Ratings: 1000 is the mean, 400 more are odds of 10 to 1", ("entry", "rating", "95 % interval"), rated)
    read, written = outcome.tokens_read, outcome.tokens_written
    notes = [*DUELS, f"{outcome.replies:,} replies, with {read:,} tokens read and {written:,} written."]
    if outcome.without_verdict:
        notes.append(f"Not counted: {outcome.without_verdict} instructions that lack a verdict.")
    if any("-" in row for row in rated):
        notes.append("-: ratings have no bound, since a model won or lost every time.")
    print_out("", *notes)


def score(
    file: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE ...",
            help="Files of AlpacaEval's annotations, .json or .jsonl.",
        ),
    ],
    data_dir: Annotated[
        list[Path] | None, typer.Option("--data-dir", help="A folder that may hold df_gamed.csv. Repeatable.")
    ] = None,
    offline: options.Offline = False,
    json: options.Json = False,
) -> None:
    """Compute AlpacaEval's metrics of judged pairs: win rate, standard error, length-controlled win rate.

    The last metric needs the file df_gamed.csv, from a data folder or the hub.
    """
    view = judged_pairs()
    documents, rows = [], []
    missing: dict[str, None] = {}
    for path in file:
        rates = view.rates(view.read_annotations(path), data_dir or (), offline=offline)
        documents.append({"file": str(path), **asdict(rates)})
        row = [rates.model or path.name, str(rates.count)]
        for number in (rates.win_rate, rates.standard_error, rates.length_controlled):
            row.append("-" if number is None else f"{number:.2%}")
        rows.append(row)
        if rates.missing:
            missing[rates.missing] = None
    if json:
        print_json(documents)
        return
    header = ("model", "n", "win rate", "standard error", "length-controlled")
    print_table("AlpacaEval's metrics", header, rows)
    print_out("", *missing)
