"""`emobench judge`: which of several models answers better, by a judge of their responses."""

from __future__ import annotations

from typing import Annotated

import typer

from emobench.cli import options
from emobench.cli.terminal.console import print_json, print_lines, print_out, print_table, reporter, visible
from emobench.core.settings import parse_overrides
from emobench.models.device import resolve_device
from emobench.runs.inspect.judged_entries import ExpectedJudging, JudgedEntries, RoundRobin, judge_rule
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
    rule = judge_rule(parse_overrides(set_ or ()))
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
    found = judging.judge(reporter(quiet), resolve_device(device))
    if json:
        print_json({"judged": found})
        return
    for one in named:
        if one.note():
            print_lines(f"{visible(one.entry.objective.label)}: {one.note()}")
    for table in found:
        _print(table)


def _show_expected(expected: list[ExpectedJudging], *, json: bool) -> None:
    if json:
        print_json({"judging": expected})
        return
    rows = [
        (
            one.task,
            *(f"{count:,}" for count in (one.pairs, one.kept, one.requests, one.tokens_read, one.tokens_written)),
        )
        for one in expected
    ]
    header = ("task", "pairs", "kept replies", "requests", "tokens read", "tokens written")
    print_table(f"{expected[0].judge}, answered by {expected[0].model}: nobody was asked", header, rows)
    print_out(
        "", "Tokens are rough: those read by the length of the prompts, those written as many as a reply may have."
    )


def _print(found: JudgedEntries) -> None:
    names = [_name(writer, found.writers) for writer in found.writers]
    rows = [
        (
            names[duel.first],
            names[duel.second],
            *map(str, (duel.wins, duel.ties, duel.losses)),
            f"{duel.win_rate:.1%}",
            f"{duel.ci95[0]:.1%} to {duel.ci95[1]:.1%}",
        )
        for duel in found.duels
    ]
    header = ("entry", "against", "wins", "ties", "losses", "win rate", "95 % interval")
    print_table(f"{found.task}: {found.judge}, answered by {found.model}", header, rows)
    rated = [
        (
            name,
            "-" if one.rating is None else f"{one.rating:.0f}",
            "-" if one.ci95 is None else f"{one.ci95[0]:.0f} to {one.ci95[1]:.0f}",
        )
        for name, one in zip(names, found.ratings, strict=True)
    ]
    print_out("")
    print_table("Ratings: 1000 is the mean, 400 more are odds of 10 to 1", ("entry", "rating", "95 % interval"), rated)
    notes = [
        f"{found.instructions} instructions. A win is preferred in both orders; orders that disagree are a tie.",
        "win rate: the mean preference of both orders. A tie is half a win; probabilities are averaged.",
        f"{found.replies:,} replies, with {found.tokens_read:,} tokens read and {found.tokens_written:,} written.",
    ]
    if found.without_verdict:
        notes.append(f"{found.without_verdict} more were left out, since a verdict on them is missing.")
    if any(one.rating is None or one.ci95 is None for one in found.ratings):
        notes.append("-: a model won, or lost, every time, also in resamples, so that ratings have no bound.")
    print_out("", *notes)


def _name(writer: Writer, writers: tuple[Writer, ...]) -> str:
    model = f"{writer.model} " if len({one.model for one in writers}) > 1 else ""
    return visible(f"{model}{writer.objective} [{writer.entry[:6]}]")
