"""The view of judged pairs: a judge compares what several models answered, each pair in both orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from emobench.core.errors import ConfigError, MetricError
from emobench.core.extras import require
from emobench.core.settings import content_hash
from emobench.kinds.cost import Requests
from emobench.kinds.instruct.instructions import Instructions
from emobench.kinds.instruct.judged import (
    REPLIES,
    Replies,
    check_verdicts,
    expected_requests,
    kept_replies,
    pair_judgements,
    replies_facts,
    request_key,
    request_keys,
    requests_of,
    tokens_of,
    unread_pairs,
)
from emobench.kinds.instruct.judging.annotations import rates, read_annotations
from emobench.kinds.instruct.judging.judge import JUDGES, Answering, Pair, PairJudge, local_identity
from emobench.kinds.instruct.judging.round_robin import Duel, Rating, round_robin
from emobench.kinds.instruct.responses import asked_instructions
from emobench.kinds.instruct.rules import InstructProtocol, JudgeRule
from emobench.kinds.views import Compared, FolderOf, Keep, Work
from emobench.models.device import LoadOptions
from emobench.models.model import Model
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


def rule_of(settings: Mapping[str, Any]) -> JudgeRule:
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


def judged(
    rule: JudgeRule, tables: Sequence[Compared], keep: Keep, work: Work, *, device: str, offline: bool
) -> list[JudgedEntries]:
    """Return the outcome on each task; `keep` has the stage of replies, and `work` begins a piece of work.

    Raises a UserError for what cannot be judged, MetricError where more than 5 % of the requests have no verdict.
    """
    require("evalica")
    judge = _pair_judge(rule)
    answering = _answering(rule, judge, device, offline)
    return [_judged(table, judge, rule, answering, keep, work) for table in tables]


def expected(rule: JudgeRule, tables: Sequence[Compared], folder_of: FolderOf, offline: bool) -> list[ExpectedJudging]:
    """Return what `judged` would ask, task by task; it raises the same for what cannot be judged."""
    judge = _pair_judge(rule)
    identity = _identity(rule, judge, offline)
    return [_expected(table, judge, rule, identity, folder_of) for table in tables]


def unanswered(rule: JudgeRule, task: Task, data: Instructions | None) -> Requests:
    """Return what comparing two responses to each instruction of a task asks, before there are responses.

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


def _expected(
    table: Compared, judge: PairJudge, rule: JudgeRule, identity: str, folder_of: FolderOf
) -> ExpectedJudging:
    pairs = _pairs(table)
    asked = {request_key(identity, one): one for pair in pairs.values() for one in requests_of(judge, pair)}
    final = folder_of("judge", replies_facts(asked))
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


def _pairs(table: Compared) -> dict[str, Pair]:
    return {
        _key(a, b, row): Pair(row["prefix"], row["generated"][a]["text"], row["generated"][b]["text"])
        for a, b in _duels(table)
        for row in table.rows
    }


def _duels(table: Compared) -> list[tuple[int, int]]:
    return list(combinations(range(len(table.writers)), 2))


def _judged(
    table: Compared, judge: PairJudge, rule: JudgeRule, answering: Answering, keep: Keep, work: Work
) -> JudgedEntries:
    duels, pairs = _duels(table), _pairs(table)
    replies, problems = kept_replies(
        judge,
        pairs,
        answering,
        keep,
        lambda: work(f"judge {table.task} with {judge.name}", "requests"),
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

    name = rule.model or judge.model
    model = Model(name, LoadOptions(device=device, offline=offline))
    with quiet_libraries():
        return LocalModel(model.model, model.tokenizer, name, _digest(name, offline))


def _identity(rule: JudgeRule, judge: PairJudge, offline: bool) -> str:
    """Return what identifies who answers, without asking or loading it."""
    if rule.backend == "endpoint":
        return rule.endpoint(judge).identity
    return local_identity(_digest(rule.model or judge.model, offline))


def _digest(name: str, offline: bool) -> str:
    return content_hash(dict(Model(name, LoadOptions(offline=offline)).identity))
