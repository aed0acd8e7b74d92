"""A table or figure made again; of one of wins and losses, whose responses judges prefer, row against baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from emobench.core.errors import MetricError
from emobench.kinds.instruct.instructions import Instruction, Instructions
from emobench.kinds.instruct.judged import expected_requests, unread_pairs
from emobench.kinds.instruct.judging.judge import Pair
from emobench.kinds.instruct.responses import asked_instructions
from emobench.kinds.instruct.rules import InstructProtocol, JudgeRule
from emobench.leaderboard.entry import Entry
from emobench.registry import find_suite, load_judge, load_kind
from emobench.report.render.duels import Duel
from emobench.reproduce.run import Reproduction, outline_table, reproduce, requests_of
from emobench.runs.dry_run.outline import Outline, StageLine, requests_words
from emobench.runs.execution.reporter import Reporter
from emobench.runs.inspect.judged_entries import JudgedEntries, RoundRobin, judge_rule
from emobench.runs.planning.ingredients import Ingredients
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import parts_of
from emobench.tasks.table import Table


def outline_judged(table: Table, request: Request, scale: str | None = None, *, exact: bool = True) -> Outline:
    """Return what making a table or figure again comes to, as `outline_table` does, with the requests to its judges."""
    found = outline_table(table, request, scale, exact=exact)
    if not table.judges:
        return found
    lines = [line for name, of in requests_of(table, request, scale) for line in duel_lines(table, of, name)]
    return replace(found, lines=(*found.lines, *lines))


def reproduce_judged(
    table: Table, request: Request, reporter: Reporter, scale: str | None = None
) -> list[Reproduction]:
    """Make a table or figure again, as `reproduce` does; then judges compare the rows of each model."""
    found = reproduce(table, request, reporter, scale)
    return [_judged(table, one, reporter) for one in found] if table.judges else found


def _judged(table: Table, made: Reproduction, reporter: Reporter) -> Reproduction:
    duels, missing = duels_of(table, made.request, made.found.measured, reporter)
    return replace(made, duels=duels, found=replace(made.found, remarks=(*made.found.remarks, *missing)))


def rules_of(table: Table, request: Request) -> list[JudgeRule]:
    """Return the judges of a figure: the one that `--set judge.name` gives, or else the figure's own."""
    given = request.section("judge")
    names = [given["name"]] if "name" in given else table.judges
    return [judge_rule({"judge": {**given, "name": name}}) for name in names]


def duels_of(
    table: Table, request: Request, measured: Mapping[str, Entry], reporter: Reporter
) -> tuple[tuple[Duel, ...], tuple[str, ...]]:
    """Return how each row fares against the baseline by each judge, seed by seed, and why others are missing.

    Replies are kept in the folder of runs. Raises what asking raises.
    """
    found: list[Duel] = []
    missing: list[str] = []
    others = [row for row in measured if row != table.baseline]
    for rule, row in product(rules_of(table, request), others):
        pair = [measured[row], measured[table.baseline]]
        for seed in pair[0].seeds:
            judging = RoundRobin(entries=pair, rule=rule, runs=request.runs, seed=seed, offline=request.offline)
            try:
                tables = judging.judge(reporter, request.device)
            except MetricError as error:
                missing.append(f"{row} against {table.baseline}, seed {seed}: {error}")
            else:
                found += [_duel(pair[0].model.name, row, table.baseline, seed, one) for one in tables]
    return tuple(found), tuple(missing)


def _duel(subject: str, row: str, baseline: str, seed: int, judged: JudgedEntries) -> Duel:
    (one,) = judged.duels
    return Duel(
        subject=subject,
        row=row,
        baseline=baseline,
        judge=judged.judge,
        model=judged.model,
        seed=seed,
        instructions=judged.instructions,
        wins=one.wins,
        ties=one.ties,
        losses=one.losses,
        win_rate=one.win_rate,
        ci95=one.ci95,
    )


def duel_lines(table: Table, request: Request, model: str) -> Iterator[StageLine]:
    """Yield what judging the rows of a figure comes to, for a dry run."""
    suite, at = find_suite(table.suite), Ingredients(request, look=True)
    tasks = [task for _, found in parts_of(replace(request, settings=_unjudged(request)), suite) for task in found]
    others = [row for row in table.rows if row != table.baseline]
    pairs = len(others) * len(request.seeds or suite.seeds)
    for rule in rules_of(table, request):
        judge = load_judge(rule.name).component
        for task in tasks:
            rules = task.protocol_as(InstructProtocol)
            data: Instructions | None = load_kind(task.kind).runtime.find(task, at)
            asked = None if data is None else asked_instructions(data, rules)
            each = unread_pairs(task.corpus, rules.limit) if asked is None else [_unanswered(one) for one in asked]
            cost = expected_requests(rule, judge, each, unknown=2 * rules.max_new_tokens)
            count, tokens = cost.count * pairs, (cost.read + cost.written) * pairs
            yield StageLine(
                stage="evaluate",
                what=f"{model}: {rule.name} compares {', '.join(others)} with {table.baseline} on {task.name}",
                amount=requests_words(count, tokens),
                requests=count,
                request_tokens=tokens,
            )


def _unanswered(one: Instruction) -> Pair:
    return Pair(one.text, "?", "!", one.asked.input)


def _unjudged(request: Request) -> dict[str, object]:
    return {name: values for name, values in request.settings.items() if name != "judge"}
