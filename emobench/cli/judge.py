"""`emobench judge`: which of several models answers better, by a judge of their responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.terminal.console import print_json, print_lines, print_out, print_table, reporter, visible
from emobench.core.settings import parse_overrides
from emobench.models.device import resolve_device
from emobench.runs.inspect.judged import RoundRobin, annotations_of, has_judgements, judged_pairs
from emobench.runs.inspect.recorded_runs import newest_of
from emobench.runs.inspect.samples import Writer, has_texts


def judge(
    entry: options.Entries,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="judge.name=NAME, and other settings of judge.* (`emobench settings judge`)."),
    ] = None,
    task: options.Tasks = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="The training seed. Default: the entry's first seed.")
    ] = None,
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
    again asks for missing ones alone. --dry-run asks nobody, and tells how many requests and tokens it would be.
    """
    rule = judged_pairs().rule_of(parse_overrides(set_ or ()))
    named = newest_of(entry, leaderboard, lambda one: has_texts(one, runs, task or (), seed))
    judging = RoundRobin(
        entries=[one.entry for one in named],
        rule=rule,
        runs=runs,
        tasks=task or (),
        seed=seed,
        limit=limit,
        offline=offline,
    )
    if dry_run:
        _show_expected(judging.expected(), json=json)
        return
    outcomes = judging.judge(reporter(quiet), resolve_device(device))
    if json:
        print_json({"judged": outcomes})
        return
    for one in named:
        if one.note():
            print_lines(f"{visible(one.entry.objective.label)}: {one.note()}")
    for outcome in outcomes:
        _print(outcome)


def _show_expected(expected: Sequence[Any], *, json: bool) -> None:
    if json:
        print_json({"judging": expected})
        return
    rows = []
    for one in expected:
        counts = (one.pairs, one.kept, one.requests, one.tokens_read, one.tokens_written)
        rows.append([one.task, *(f"{count:,}" for count in counts)])
    header = ("task", "pairs", "kept replies", "requests", "tokens read", "tokens written")
    print_table(f"{expected[0].judge}, answered by {expected[0].model}: nobody was asked", header, rows)
    print_out(
        "", "Tokens are rough: those read by the length of the prompts, those written as many as a reply may have."
    )


def _print(outcome: Any) -> None:
    names = [_name(writer, outcome.writers) for writer in outcome.writers]
    rows = []
    for duel in outcome.duels:
        low, high = duel.ci95
        counts = (str(duel.wins), str(duel.ties), str(duel.losses))
        rows.append(
            [names[duel.first], names[duel.second], *counts, f"{duel.win_rate:.1%}", f"{low:.1%} to {high:.1%}"]
        )
    header = ("entry", "against", "wins", "ties", "losses", "win rate", "95 % interval")
    print_table(f"{outcome.task}: {outcome.judge}, answered by {outcome.model}", header, rows)
    print_out("")
    rated = []
    unbounded = False
    for name, one in zip(names, outcome.ratings, strict=True):
        rating = interval = "-"
        if one.rating is not None:
            rating = f"{one.rating:.0f}"
        if one.ci95 is not None:
            interval = f"{one.ci95[0]:.0f} to {one.ci95[1]:.0f}"
        unbounded = unbounded or "-" in (rating, interval)
        rated.append([name, rating, interval])
    print_table("Ratings: 1000 is the mean, 400 more are odds of 10 to 1", ("entry", "rating", "95 % interval"), rated)
    read, written = outcome.tokens_read, outcome.tokens_written
    notes = [
        f"{outcome.instructions} instructions. A win is preferred in both orders; orders that disagree are a tie.",
        "win rate: the mean preference of both orders. A tie is half a win; probabilities are averaged.",
        f"{outcome.replies:,} replies, with {read:,} tokens read and {written:,} written.",
    ]
    if outcome.without_verdict:
        notes.append(f"{outcome.without_verdict} more were left out, since a verdict on them is missing.")
    if unbounded:
        notes.append("-: a model won, or lost, every time, also in resamples, so that ratings have no bound.")
    print_out("", *notes)


def _name(writer: Writer, writers: tuple[Writer, ...]) -> str:
    model = f"{writer.model} " if len({one.model for one in writers}) > 1 else ""
    return visible(f"{model}{writer.objective} [{writer.entry[:6]}]")


def score(
    judged: Annotated[
        list[str],
        typer.Argument(
            metavar="JUDGED ...",
            help="Files of AlpacaEval's annotations, .json or .jsonl, or entries of runs with a judge of pairs.",
        ),
    ],
    task: options.Tasks = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="The training seed. Default: the entry's first seed.")
    ] = None,
    data_dir: Annotated[
        list[Path] | None, typer.Option("--data-dir", help="A folder that may hold df_gamed.csv. Repeatable.")
    ] = None,
    leaderboard: options.Board = options.DEFAULT_BOARD,
    runs: options.Runs = options.DEFAULT_RUNS,
    offline: options.Offline = False,
    json: options.Json = False,
) -> None:
    """Compute AlpacaEval's metrics of judged pairs: win rate, standard error, length-controlled win rate.

    The pairs are annotations in a file, or the kept judgements of an entry; there, both orders count. The last metric
    needs the file df_gamed.csv, from a data folder or the hub. Without it, there is the win rate at equal lengths by
    the lengths alone, which is another number.
    """
    view = judged_pairs()
    annotated: list[tuple[dict[str, str], list[dict[str, Any]]]] = []
    for word in judged:
        if Path(word).suffix in (".json", ".jsonl"):
            annotated.append(({"file": word}, view.read_annotations(Path(word))))
            continue
        ((entry, *_),) = newest_of([word], leaderboard, lambda one: has_judgements(one, runs))
        for name, pairs in annotations_of(entry, runs, task, seed).items():
            annotated.append(({"entry": entry.id, "task": name}, pairs))
    documents, rows, missing = [], [], []
    for origin, pairs in annotated:
        rates = view.rates(pairs, data_dir or (), offline=offline)
        documents.append({**origin, **asdict(rates)})
        numbers = (rates.win_rate, rates.standard_error, rates.length_controlled, rates.length_controlled_minimal)
        shown = ["-" if number is None else f"{number:.2%}" for number in numbers]
        model = rates.model or Path(origin["file"]).name
        rows.append([model, origin.get("task", "-"), str(rates.count), *shown])
        if rates.missing and rates.missing not in missing:
            missing.append(rates.missing)
    if json:
        print_json(documents)
        return
    header = ("model", "task", "n", "win rate", "standard error", "length-controlled", "on lengths alone")
    print_table("AlpacaEval's metrics", header, rows)
    print_out("", *missing)
