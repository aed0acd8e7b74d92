"""What a result file of any harness says of one model: numbers, what decides them, and examples by their content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emobench.core.errors import MetricError
from emobench.leaderboard.run_files import Recorded
from emobench.leaderboard.stats.series import common_ids
from emobench.tasks.lm_eval_numbers import clip

MOST_NAMED = 4
"""Differences that are named one by one."""
LONGEST = 60
"""Characters of a value that is shown."""
TEMPLATE_ARGUMENTS = ("chat_template_args", "enable_thinking", "think_end_token")
"""Arguments of the model's own chat template. They decide numbers, unless each model has its own template."""
UNNAMED = "unnamed"
"""The model of a file that names none."""
EXPECTED = "results_*.json of lm-evaluation-harness, JSON logs of inspect, or records of Every Eval Ever"
"""The files that are read."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One number; `n` counts its examples. `interval` is a 95 % one, where the file has it; `covers` says of what.

    `scale` is what the file says of the range: numbers on other scales are not compared.
    """

    value: float
    unit: str
    higher_is_better: bool | None
    n: int | None = None
    interval: tuple[float, float] | None = None
    covers: str = "items"
    scale: str = ""


@dataclass(frozen=True)
class Window:
    """How many tokens a model reads at once, if known, and whether this decides a task's numbers.

    It does in tasks of rolling likelihoods, and where the command chose it; else each model has its own.
    """

    tokens: str | None
    decides: bool


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One model's evaluation. Numbers and examples are by "<task>/<metric>", the rest by task.

    Examples are identified by their content, so that those of two files pair whatever their order. `prompts` holds a
    digest of what the model was shown and of the target; `rules` all else that decides a task's numbers. `members` are
    the tasks of a group.

    `without` says of a number why it has no examples, and `notes` what was left out of which.

    `targets` has a digest of each target alone: models with chat templates of their own, whose digest is `template`,
    are paired by it. `variant` distinguishes models of one name, and `precision` says how the model was run, as far as
    it changes numbers by rounding or by random draws.

    Where the file says so, `base` is the model that it was trained from, as an entry has it, and `objective` what it
    was trained with. `created` is a date, or seconds since 1970.
    """

    path: Path
    format: str
    harness: str
    version: str | None
    model: str
    numbers: Mapping[str, Measured]
    examples: Mapping[str, Recorded]
    prompts: Mapping[str, Mapping[str, str]]
    rules: Mapping[str, Mapping[str, Any]]
    without: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    targets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    template: str | None = None
    windows: Mapping[str, Window] = field(default_factory=dict)
    variant: str = ""
    precision: Mapping[str, str] = field(default_factory=dict)
    base: Mapping[str, Any] | None = None
    objective: str | None = None
    created: str | None = None


def by_content(contents: Mapping[str, str]) -> dict[str, str]:
    """Return example -> an id of its content, from example -> its digest; equal documents are numbered in order."""
    seen: Counter[str] = Counter()
    found = {}
    for example, content in contents.items():
        seen[content] += 1
        found[example] = content if seen[content] == 1 else f"{content}#{seen[content]}"
    return found


def renamed(recorded: Recorded, names: Mapping[str, str]) -> Recorded:
    """Return per-example results under other names of the examples."""
    units = {names[example]: unit for example, unit in recorded.units.items()}
    return Recorded({names[example]: value for example, value in recorded.examples.items()}, units)


def unpaired(ours: Evaluation, theirs: Evaluation, task: str) -> list[str]:
    """Return in words why a task's examples cannot be compared in two evaluations; empty where they can.

    The examples that both have must be alike; either may lack some, by the rule of `common_examples`. A group's rule is
    for all of its examples, not for those of each member.
    """
    found = []
    for member in tasks_below(ours.members, task):
        found += [f"{member}: {why}" for why in _unlike(ours, theirs, member)]
    found += _unlike(ours, theirs, task)
    mine, others = (_digests(one, task, by_target=own_templates(ours, theirs)) for one in (ours, theirs))
    if mine and others:
        try:
            common_ids([frozenset(mine)], [frozenset(others)])
        except MetricError as error:
            found.append(str(error))
    return found


def tasks_below(members: Mapping[str, Sequence[str]], group: str) -> list[str]:
    """Return the tasks and groups that a group consists of, directly or through other groups, each once."""
    found: dict[str, None] = {}
    waiting = list(members.get(group, ()))
    for member in waiting:  # grows while members of members are found
        if member not in found and member != group:
            found[member] = None
            waiting += members.get(member, ())
    return list(found)


def _unlike(ours: Evaluation, theirs: Evaluation, task: str) -> list[str]:
    """Return what two evaluations of a task, without its members, did differently."""
    found = []
    left, right = ours.rules.get(task, {}), theirs.rules.get(task, {})
    by_target = own_templates(ours, theirs)
    of_template = [f"model argument {name}" for name in TEMPLATE_ARGUMENTS] if by_target else []
    for name in dict.fromkeys([*left, *right]):
        if name not in of_template and left.get(name) != right.get(name):
            found.append(f"{_shown(name)}: {_shown(left.get(name))} and {_shown(right.get(name))}")
    windows = [one.windows.get(task, Window(None, decides=False)) for one in (ours, theirs)]
    if any(window.decides for window in windows) and windows[0].tokens != windows[1].tokens:
        found.append(f"window in tokens: {_shown(windows[0].tokens)} and {_shown(windows[1].tokens)}")
    mine, others = (_digests(one, task, by_target=by_target) for one in (ours, theirs))
    common = mine.keys() & others.keys()
    if changed := sum(mine[example] != others[example] for example in common):
        found.append(f"prompts or targets of {changed} of {len(common)} examples differ")
    return found


def _digests(one: Evaluation, task: str, *, by_target: bool) -> Mapping[str, str]:
    return (one.targets if by_target else one.prompts).get(task, {})


def own_templates(ours: Evaluation, theirs: Evaluation) -> bool:
    """Return whether each model was asked in a chat template of its own, so that no prompt can be the other's."""
    return bool(ours.template and theirs.template and ours.template != theirs.template)


def remarks(ours: Evaluation, theirs: Evaluation) -> list[str]:
    """Return what differs between two evaluations and does not keep them from being compared, in sentences."""
    found = []
    if own_templates(ours, theirs):
        found.append("Each model has its own chat template: examples are paired by document and target.")
    unlike = {
        name: (ours.precision.get(name), theirs.precision.get(name))
        for name in dict.fromkeys([*ours.precision, *theirs.precision])
        if ours.precision.get(name) != theirs.precision.get(name)
    }
    if unlike:
        shown = "; ".join(f"{name} {_shown(a)} and {_shown(b)}" for name, (a, b) in unlike.items())
        found.append(f"The models were not run alike: {shown}.")
    versions = [one.version for one in (ours, theirs)]
    if all(versions) and versions[0] != versions[1]:
        found.append(f"The files are of {ours.harness} {versions[0]} and {versions[1]}, which may score differently.")
    return found


def _shown(value: Any) -> str:
    return "none" if value is None else clip(str(value), LONGEST)
