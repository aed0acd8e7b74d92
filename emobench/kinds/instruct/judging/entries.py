"""The view of judged pairs: a judge compares what several models answered, each pair in both orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from emobench.core.errors import ConfigError, MetricError
from emobench.core.extras import require
from emobench.kinds.cost import Requests
from emobench.kinds.instruct.instructions import Instructions
from emobench.kinds.instruct.judged import (
    REPLIES,
    Replies,
    answering_of,
    check_verdicts,
    expected_requests,
    kept_replies,
    keyed_requests,
    pair_judgements,
    replies_facts,
    tokens_of,
    unread_pairs,
    who_judges,
)
from emobench.kinds.instruct.judging.annotations import rates, read_annotations
from emobench.kinds.instruct.judging.judge import JUDGES, Answering, Pair, PairJudge
from emobench.kinds.instruct.judging.round_robin import Duel, Places, Rating, round_robin
from emobench.kinds.instruct.responses import asked_instructions
from emobench.kinds.instruct.rules import InstructProtocol, JudgeRule
from emobench.kinds.interface import Keep, Work
from emobench.kinds.views import Compared, FolderOf
from emobench.models.device import LoadOptions
from emobench.models.model import AuxiliaryModel, Model
from emobench.models.quiet import quiet_libraries
from emobench.tasks.rules import override
from emobench.tasks.spec import Task

__all__ = ["expected", "judged", "rates", "read_annotations", "rule_of", "unanswered"]


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
    writers: tuple[Any, ...]
    duels: tuple[Duel, ...]
    ratings: tuple[Rating, ...]


@dataclass(frozen=True, kw_only=True)
class ExpectedJudging:
    """The requests of a round robin on one task without a kept reply, and their tokens, at most."""

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


def rule_of(settings: Mapping[str, Any]) -> JudgeRule:
    """Return the rule of `--set judge.*`. Raises ConfigError for other settings, and where no judge is named."""
    if others := sorted(settings.keys() - {"judge"}):
        raise ConfigError(f"--set {others[0]}: the responses exist already, and only judge.* can be set; drop it.")
    given = settings.get("judge", {})
    if not isinstance(given, Mapping):
        raise ConfigError(f"--set judge={given}: expected a setting of it, such as --set judge.name={given}.")
    rule = override(JudgeRule(), given, "--set judge")
    if not rule.used:
        raise ConfigError("No judge was chosen: add --set judge.name=NAME, see `emobench judges list`.")
    return rule


def judged(
    rule: JudgeRule, tables: Sequence[Compared], keep: Keep, work: Work, *, device: str, offline: bool
) -> list[JudgedEntries]:
    """Return the outcome on each task; `keep` has the stage of replies, and `work` begins a piece of work.

    Raises a UserError for what cannot be judged, MetricError where more than 5 % of the requests have no verdict.
    """
    require("evalica")
    judge = _pair_judge(rule)
    answering = _answering(rule, judge, device, offline)
    with quiet_libraries():
        return [_judged(table, judge, rule, answering, keep, work) for table in tables]


def expected(rule: JudgeRule, tables: Sequence[Compared], folder_of: FolderOf, offline: bool) -> list[ExpectedJudging]:
    """Return what `judged` would ask, task by task; it raises the same for what cannot be judged."""
    judge = _pair_judge(rule)
    answering = _answering(rule, judge, "cpu", offline)
    judging = []
    for table in tables:
        pairs = _pairs(table)
        _, requests = keyed_requests(judge, pairs, answering.identity)
        final = folder_of("judge", replies_facts(requests))
        missing = dict(requests)
        for folder in (final, final.with_name(f"{final.name}.part")):
            for digest in Replies(folder / REPLIES).known if folder.is_dir() else ():
                missing.pop(digest, None)
        cost = tokens_of(rule.model_of(judge), list(missing.values()))
        judging.append(
            ExpectedJudging(
                task=table.task,
                judge=rule.name,
                model=cost.model,
                pairs=len(pairs),
                kept=len(requests) - len(missing),
                requests=cost.count,
                tokens_read=cost.read,
                tokens_written=cost.written,
            )
        )
    return judging


def unanswered(rule: JudgeRule, task: Task, data: Instructions | None) -> Requests:
    """Return the requests of comparing two responses to each instruction of a task, before there are responses.

    `data` is None if the instructions are not on this machine.
    """
    rules = task.protocol_as(InstructProtocol)
    pairs = unread_pairs(task.corpus, rules.limit)
    if data is not None:
        pairs = [Pair(one.text, "?", "!", one.asked.input) for one in asked_instructions(data, rules)]
    return expected_requests(rule, JUDGES.load(rule.name).plugin, pairs, unknown=2 * rules.max_new_tokens)


def _pair_judge(rule: JudgeRule) -> PairJudge:
    judge = JUDGES.load(rule.name).plugin
    if not isinstance(judge, PairJudge):
        raise ConfigError(f"{judge.name} grades one response; give a judge of two, see `emobench judges list`.")
    return judge


def _answering(rule: JudgeRule, judge: PairJudge, device: str, offline: bool) -> Answering:
    def load(model: AuxiliaryModel) -> Model:
        return Model(model.name, LoadOptions(device=device, offline=offline))

    return answering_of(rule, judge, load)


def _duels(table: Compared) -> list[Places]:
    return list(combinations(range(len(table.writers)), 2))


def _pairs(table: Compared) -> dict[str, Pair]:
    pairs = {}
    for duel in _duels(table):
        for row in table.rows:
            first, second = (row["generated"][place]["text"] for place in duel)
            pairs[_key(duel, row)] = Pair(row["prefix"], first, second)
    return pairs


def _key(duel: Places, row: Mapping[str, Any]) -> str:
    return f"{duel[0]} {duel[1]} {row['prompt']}"


def _judged(
    table: Compared, judge: PairJudge, rule: JudgeRule, answering: Answering, keep: Keep, work: Work
) -> JudgedEntries:
    title = f"judge {table.task} with {judge.name}"
    answered = kept_replies(judge, _pairs(table), answering, keep, lambda: work(title, "requests"))
    judgements = pair_judgements(judge, answered)
    check_verdicts(judgements, answered.counts, who_judges(rule, judge))
    verdicts = {one.id: one for one in judgements if one.preference is not None}
    duels = _duels(table)
    preferences: dict[Places, list[float]] = {duel: [] for duel in duels}
    outcomes: dict[Places, list[int | None]] = {duel: [] for duel in duels}
    units = []
    for row in table.rows:
        if all(_key(duel, row) in verdicts for duel in duels):
            units.append(row["prefix"])
            for duel in duels:
                verdict = verdicts[_key(duel, row)]
                preferences[duel].append(verdict.preference or 0.0)
                outcomes[duel].append(verdict.outcome)
    if not units:
        raise MetricError(
            f"{who_judges(rule, judge)} gave no instruction of {table.task} a verdict on every pair of entries. Name "
            "fewer entries, or take a judge model that keeps to the form."
        )
    fought, ratings = round_robin(preferences, outcomes, units)
    return JudgedEntries(
        task=table.task,
        judge=rule.name,
        model=rule.model_of(judge),
        instructions=len(units),
        without_verdict=len(table.rows) - len(units),
        **answered.replies.counts(),
        writers=table.writers,
        duels=tuple(fought),
        ratings=tuple(ratings),
    )
