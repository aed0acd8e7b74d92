"""From entries to a round robin: a judge compares what their models answered, each pair in both orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, MetricError
from emobench.core.extras import require
from emobench.core.settings import content_hash
from emobench.kinds.instruct.judged import (
    REPLIES,
    Replies,
    check_verdicts,
    kept_replies,
    pair_judgements,
    replies_facts,
    request_key,
    request_keys,
    requests_of,
    tokens_of,
)
from emobench.kinds.instruct.judging.judge import Answering, Pair, PairJudge, local_identity
from emobench.kinds.instruct.judging.round_robin import Duel, Rating, round_robin
from emobench.kinds.instruct.rules import JudgeRule
from emobench.leaderboard.entry import Entry
from emobench.models.catalog import find_model
from emobench.models.folder import identity
from emobench.models.quiet import quiet_libraries
from emobench.registry import load_judge
from emobench.runs.execution.reporter import Reporter
from emobench.runs.inspect.samples import SideBySide, Writer, side_by_side
from emobench.runs.stages.stage import Stage, Stages
from emobench.runs.stages.storage import require_writable
from emobench.tasks.rules import override

ALL = 10**12


@dataclass(frozen=True, kw_only=True)
class JudgedEntries:
    """The outcome on one task; places in `duels` and `ratings` are those of `writers`."""

    task: str
    judge: str
    model: str
    """Who answered for the judge."""
    instructions: int
    """With a verdict on every pair of models."""
    without_verdict: int
    """Instructions that were left out, since a verdict on them is missing."""
    replies: int
    tokens_read: int
    tokens_written: int
    """By all replies, those of earlier commands too, as the one who answered counts them."""
    writers: tuple[Writer, ...]
    duels: tuple[Duel, ...]
    ratings: tuple[Rating, ...]


@dataclass(frozen=True, kw_only=True)
class ExpectedJudging:
    """What a round robin on one task asks: requests without a kept reply, and their tokens, at most."""

    task: str
    judge: str
    model: str
    pairs: int
    """Of responses; each is asked about in both orders, but for equal ones."""
    kept: int
    """Requests whose reply is kept, and which are not sent again."""
    requests: int
    tokens_read: int
    """Of prompts, by their length."""
    tokens_written: int
    """Of replies, as many as each may have."""


def judge_rule(settings: Mapping[str, Any]) -> JudgeRule:
    """Return what `--set judge.*` says. Raises ConfigError for other settings, and where no judge is named."""
    if others := sorted(settings.keys() - {"judge"}):
        raise ConfigError(f"--set {others[0]}: the responses are there, and only judge.* can be set; drop it.")
    given = settings.get("judge", {})
    if not isinstance(given, Mapping):
        raise ConfigError(f"--set judge={given}: expected a setting of it, such as --set judge.name={given}.")
    rule = override(JudgeRule(), given, "--set judge")
    if not rule.used:
        raise ConfigError("No judge was chosen: add --set judge.name=NAME, see `emobench judges list`.")
    return rule


@dataclass(frozen=True, kw_only=True)
class RoundRobin:
    """Entries whose responses a judge compares, on each task that all have responses of (only `tasks`, if any)."""

    entries: Sequence[Entry]
    rule: JudgeRule
    runs: Path
    tasks: Sequence[str] = ()
    seed: int | None = None
    limit: int | None = None
    offline: bool = False

    def judge(self, reporter: Reporter, device: str = "cpu") -> list[JudgedEntries]:
        """Return the outcome on each task.

        Raises a UserError for what cannot be judged, MetricError where more than 5 % of the requests have no verdict.
        """
        require("evalica")
        judge, tables = self._judge(), self._tables()
        require_writable(self.runs, "--runs")
        stages = Stages(self.runs, note=reporter.note)
        answering = _answering(self.rule, judge, device, self.offline)
        return [_judged(table, judge, self.rule, answering, stages, reporter) for table in tables]

    def expected(self) -> list[ExpectedJudging]:
        """Return what `judge` would ask, task by task; it raises the same for what cannot be judged."""
        judge, tables = self._judge(), self._tables()
        answering = _identity(self.rule, judge, self.offline)
        return [_expected(table, judge, self.rule, answering, Stages(self.runs)) for table in tables]

    def _tables(self) -> Sequence[SideBySide]:
        return side_by_side(self.entries, self.runs, self.tasks, seed=self.seed, count=self.limit or ALL)

    def _judge(self) -> PairJudge:
        judge = load_judge(self.rule.name).component
        if not isinstance(judge, PairJudge):
            raise ConfigError(f"{judge.name} grades one response; give a judge of two, see `emobench judges list`.")
        if len(self.entries) < 2:
            raise ConfigError(
                "A judge compares two entries or more; name another one, see `emobench leaderboard show`."
            )
        return judge


def _expected(table: SideBySide, judge: PairJudge, rule: JudgeRule, identity: str, stages: Stages) -> ExpectedJudging:
    pairs = _pairs(table)
    asked = {request_key(identity, one): one for pair in pairs.values() for one in requests_of(judge, pair)}
    stage = Stage("judge", replies_facts(asked))
    final = stages.folder(stage)
    known = [Replies(folder / REPLIES) for folder in (final, final.with_name(f"{final.name}.part")) if folder.is_dir()]
    missing = [one for key, one in asked.items() if not any(key in replies for replies in known)]
    cost = tokens_of(rule.model or judge.model, missing)
    return ExpectedJudging(
        task=table.task,
        judge=rule.name,
        model=cost.model,
        pairs=len(pairs),
        kept=len(asked) - len(missing),
        requests=cost.count,
        tokens_read=cost.read,
        tokens_written=cost.written,
    )


def _pairs(table: SideBySide) -> dict[str, Pair]:
    return {
        _key(a, b, row): Pair(row["prefix"], row["generated"][a]["text"], row["generated"][b]["text"])
        for a, b in _duels(table)
        for row in table.rows
    }


def _duels(table: SideBySide) -> list[tuple[int, int]]:
    return list(combinations(range(len(table.writers)), 2))


def _judged(
    table: SideBySide, judge: PairJudge, rule: JudgeRule, answering: Answering, stages: Stages, reporter: Reporter
) -> JudgedEntries:
    duels, pairs = _duels(table), _pairs(table)
    replies, problems = kept_replies(
        judge,
        pairs,
        answering,
        lambda kind, facts, work: stages.make(Stage(kind, facts), work, continues=True),
        lambda: reporter.work(f"judge {table.task} with {judge.name}", "requests"),
    )
    judged = pair_judgements(judge, pairs, answering.identity, replies, problems)
    counts = {key: len(keys) for key, keys in request_keys(judge, pairs, answering.identity).items()}
    model = rule.model or judge.model
    check_verdicts(judged, counts, f"{judge.name}, answered by {model},")
    read, written = replies.tokens()
    verdicts = {one.id: one for one in judged if one.preference is not None}
    whole = [row for row in table.rows if all(_key(a, b, row) in verdicts for a, b in duels)]
    if not whole:
        raise MetricError(
            f"{judge.name}, answered by {model}, gave no instruction of {table.task} a verdict on every pair of "
            "entries. Name fewer entries, or take a judge model that keeps to the form."
        )
    of_duel = {(a, b): [verdicts[_key(a, b, row)] for row in whole] for a, b in duels}
    found, ratings = round_robin(
        {pair: [one.preference or 0.0 for one in of] for pair, of in of_duel.items()},
        {pair: [one.outcome for one in of] for pair, of in of_duel.items()},
        [row["prefix"] for row in whole],
    )
    return JudgedEntries(
        task=table.task,
        judge=rule.name,
        model=model,
        instructions=len(whole),
        without_verdict=len(table.rows) - len(whole),
        replies=len(replies),
        tokens_read=read,
        tokens_written=written,
        writers=table.writers,
        duels=tuple(found),
        ratings=tuple(ratings),
    )


def _key(a: int, b: int, row: Mapping[str, Any]) -> str:
    return f"{a} {b} {row['prompt']}"


def _answering(rule: JudgeRule, judge: PairJudge, device: str, offline: bool) -> Answering:
    if rule.backend == "endpoint":
        require("openai")
        endpoint = rule.endpoint(judge)
        endpoint.check_key()
        return endpoint
    from emobench.kinds.instruct.judging.local import LocalModel
    from emobench.models.load import load_model

    name = rule.model or judge.model
    with quiet_libraries():
        loaded = load_model(find_model(name, offline=offline), device=device, offline=offline, frozen=True)
    return LocalModel(loaded.model, loaded.tokenizer, name, _digest(name, offline))


def _identity(rule: JudgeRule, judge: PairJudge, offline: bool) -> str:
    """Return what identifies who answers, without asking or loading it."""
    if rule.backend == "endpoint":
        return rule.endpoint(judge).identity
    return local_identity(_digest(rule.model or judge.model, offline))


def _digest(name: str, offline: bool) -> str:
    return content_hash(identity(find_model(name, offline=offline)))
