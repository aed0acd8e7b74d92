"""The evaluation of one model, as a result file of any harness has it, and when two of them can be compared.

Each format has a reader that makes an `Evaluation` (`lm_eval.py`, `inspect_log.py`, `every_eval_ever.py`). Files are
compared as they are, or become entries of a board (`result_files.py`).

The files may be a stranger's: sizes are bounded, and no field is trusted.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError, MetricError
from emobench.core.reading import LineError, json_rows, parse_json, read_text
from emobench.core.settings import file_sha256
from emobench.data.sampling_units import joined_units
from emobench.leaderboard.private_paths import distinct_name
from emobench.leaderboard.run_files import Recorded
from emobench.leaderboard.stats.classical import NORMAL
from emobench.leaderboard.stats.series import common_ids
from emobench.tasks.lm_eval_numbers import Values, clip, number

Json = Mapping[str, Any]
"""An object of JSON."""
Fields = dict[str, Any]
"""An object of JSON whose fields are filled in."""
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
    """One number; `n` counts its examples. `interval` is a 95 % one of what `covers` names.

    `scale` is the range that the file gives: numbers on other scales are not compared.
    """

    value: float
    unit: str
    higher_is_better: bool | None
    n: int | None = None
    interval: tuple[float, float] | None = None
    covers: str = "items"
    without_interval: str = "the file gives no standard error"
    scale: str = ""
    flags: tuple[str, ...] = ()

    def summary(self) -> Fields:
        """Return the number as the plain summary of an entry's metric."""
        summary: Fields = {
            "mean": self.value,
            "std": None,
            "values": [self.value],
            "n": self.n,
            "ci95": None,
            "ci95_of": None,
            "ci95_missing": self.without_interval,
            "higher_is_better": self.higher_is_better,
            "unit": self.unit,
            "flags": list(self.flags),
        }
        if self.interval is not None:
            summary |= {"ci95": list(self.interval), "ci95_of": self.covers, "ci95_missing": None}
        return summary


@dataclass(frozen=True)
class Window:
    """How many tokens a model reads at once, if known, and whether this decides a task's numbers.

    It does in tasks of rolling likelihoods, and where the command chose it; else each model has its own.
    """

    tokens: str | None = None
    decides: bool = False


@dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """A task or group of an evaluation. `members` are a group's tasks, `data` is a digest.

    `prompts` has a digest of each example's prompt and target, `targets` of its target alone. `rules` are all other
    facts that decide the numbers, and `protocol` their id.
    """

    rules: Json = field(default_factory=dict)
    protocol: str = ""
    data: str | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)
    members: Sequence[str] = ()
    window: Window = Window()


@dataclass(kw_only=True)
class Evaluation:
    """One model's evaluation, as its reader fills it. Numbers and examples are by "<task>/<metric>".

    Examples are identified by their content, so that those of two files pair whatever their order. `absent` says why a
    number is missing, `without` why it has no examples, and `notes` name other parts that were left out.

    Models with chat templates of their own, whose digest is `template`, are paired by their targets. `variant`
    distinguishes models of one name, and `precision` says how the model was run, as far as it changes numbers by
    rounding or by random draws.

    Of an imported entry, `row` is the model (the trained one if the file says so), `objective` its training, and `cite`
    its source. `created` is a date, or seconds since 1970.
    """

    path: Path
    format: str
    harness: str
    version: str | None = None
    model: str
    variant: str = ""
    row: Json
    created: str | None = None
    cite: str
    provenance: Json = field(default_factory=lambda: {"commit": None, "packages": {}, "hardware": None})
    tasks: dict[str, TaskFacts] = field(default_factory=dict)
    numbers: dict[str, Measured] = field(default_factory=dict)
    examples: dict[str, Recorded] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    without: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    recipe: Json = field(default_factory=dict)
    template: str | None = None
    precision: Mapping[str, str] = field(default_factory=dict)
    objective: str | None = None
    seeds: Mapping[int, Evaluation] = field(default_factory=dict)
    """Of a training that has one evaluation for each seed: these, in order. The other fields are those of one seed."""

    @property
    def protocols(self) -> dict[str, str]:
        return {task: facts.protocol for task, facts in self.tasks.items()}

    @property
    def data(self) -> dict[str, str]:
        data = {}
        for task, facts in self.tasks.items():
            if facts.data:
                data[task] = facts.data
        return data

    @property
    def title(self) -> str:
        name = self.model.rstrip("/").rpartition("/")[2] or self.model
        return name + self.variant


def normal_interval(value: float, error: float | None, *, fraction: bool) -> tuple[float, float] | None:
    """Return value ± 1.96 standard errors, a fraction's within [0, 1]; none of an error of 0, which is no certainty."""
    if not error:
        return None
    low = value - NORMAL * error
    high = value + NORMAL * error
    if fraction:
        return max(low, 0.0), min(high, 1.0)
    return low, high


def is_mean(values: Values, mean: float) -> bool:
    """Return whether the weighted mean of some values is this one."""
    total = math.fsum(weight for _, weight in values.values())
    if not total:
        return False
    weighted = math.fsum(value * weight for value, weight in values.values())
    return math.isclose(weighted / total, mean, rel_tol=1e-6, abs_tol=1e-9)


def entry_facts(
    path: Path,
    made: str,
    harness: str,
    version: str | None,
    rules: Mapping[str, Json],
    prompts: Mapping[str, Mapping[str, str]],
) -> Fields:
    """Return an Evaluation's `harness`, `version`, `tasks`, `cite` and `provenance`, from the facts by task.

    `made` says what the file is, such as "log of inspect".
    """
    by = harness
    packages = {}
    if version is not None:
        by = f"{harness} {version}"
        if version != "unknown":
            packages[harness] = version
    tasks = {}
    for task, of_task in rules.items():
        digests = prompts.get(task, {})
        data = None
        if digests:
            data = f"sha256:{digest_of(sorted(digests))} (its examples)"
        protocol = f"{harness}@{digest_of(of_task)[:6]}"
        tasks[task] = TaskFacts(rules=of_task, protocol=protocol, data=data, prompts=digests)
    return {
        "harness": harness,
        "version": version,
        "tasks": tasks,
        "cite": f"{made}, by {by}; {clip(path.name, 100)} (sha256 {file_sha256(path)[:12]})",
        "provenance": {"commit": None, "packages": packages, "hardware": None},
    }


def named_model(path: Path, model: str, variant: str, slashes: int = 1) -> dict[str, str]:
    """Return the model of an entry by the name that a file gives it, which has at most so many `slashes`."""
    name = distinct_name(model, slashes)
    # Files that name no model may be of different ones.
    which = f"#{file_sha256(path)[:8]}" if name == UNNAMED else ""
    return {"name": name.rpartition("/")[2] + variant, "source": name + which + variant}


@dataclass
class Samples:
    """The samples of a task or metric by their ids: digests of content, of prompt and target, of the target alone.

    `inputs` are digests of what a model reads, `named` the units that the data name, `values` what the reader needs.
    """

    contents: dict[str, str] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, list[str]] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    values: Fields = field(default_factory=dict)

    @cached_property
    def names(self) -> dict[str, str]:
        """Sample -> an id of its content; equal documents are numbered in order."""
        seen = Counter()
        names = {}
        for sample, content in self.contents.items():
            seen[content] += 1
            names[sample] = content
            if seen[content] > 1:
                names[sample] += f"#{seen[content]}"
        return names

    @cached_property
    def units(self) -> dict[str, str]:
        return joined_units(self.inputs, self.named)

    def renamed(self, of_samples: Mapping[str, Any]) -> Fields:
        """Return a mapping by samples as one by their content."""
        return {self.names[sample]: value for sample, value in of_samples.items()}

    def recorded(self, values: Values) -> Recorded:
        """Return per-example results by content."""
        return Recorded(self.renamed(values), self.renamed(self.units))


def unpaired(ours: Evaluation, theirs: Evaluation, task: str) -> list[str]:
    """Return in words why a task's examples cannot be compared in two evaluations; empty where they can.

    The rules of the task and of the members of a group must be alike, and so must the examples that both have. Either
    may lack some, by the rule of `common_ids`: in a group it is for all of its examples, not for those of each member.
    """
    reasons = []
    members = {name: facts.members for name, facts in ours.tasks.items()}
    for member in tasks_below(members, task):
        for why in _unlike(ours, theirs, member):
            reasons.append(f"{member}: {why}")
    reasons += _unlike(ours, theirs, task)
    mine, others = _paired_digests(ours, theirs, task)
    if mine and others:
        try:
            common_ids([frozenset(mine)], [frozenset(others)])
        except MetricError as error:
            reasons.append(str(error))
    return reasons


def tasks_below(members: Mapping[str, Sequence[str]], group: str) -> list[str]:
    """Return the tasks and groups that a group consists of, directly or through other groups, each once."""
    below = {}
    waiting = list(members.get(group, ()))
    for member in waiting:  # grows while members of members are added
        if member not in below and member != group:
            below[member] = None
            waiting += members.get(member, ())
    return list(below)


def _facts(ours: Evaluation, theirs: Evaluation, task: str) -> tuple[TaskFacts, TaskFacts]:
    return ours.tasks.get(task, TaskFacts()), theirs.tasks.get(task, TaskFacts())


def _unlike(ours: Evaluation, theirs: Evaluation, task: str) -> list[str]:
    """Return what two evaluations of a task, without its members, did differently."""
    left, right = _facts(ours, theirs, task)
    ignored: Sequence[str] = ()
    if own_templates(ours, theirs):
        ignored = [f"model argument {name}" for name in TEMPLATE_ARGUMENTS]
    reasons = _differing(left.rules, right.rules, ": ", ignored)
    if (left.window.decides or right.window.decides) and left.window.tokens != right.window.tokens:
        name = "window in tokens"
        reasons += _differing({name: left.window.tokens}, {name: right.window.tokens}, ": ")
    mine, others = _paired_digests(ours, theirs, task)
    common = mine.keys() & others.keys()
    changed = 0
    for example in common:
        changed += mine[example] != others[example]
    if changed:
        reasons.append(f"prompts or targets of {changed} of {len(common)} examples differ")
    return reasons


def _differing(left: Json, right: Json, separator: str, ignored: Sequence[str] = ()) -> list[str]:
    lines = []
    for name in dict.fromkeys([*left, *right]):
        mine = left.get(name)
        other = right.get(name)
        if mine != other and name not in ignored:
            lines.append(f"{clip(name, LONGEST)}{separator}{_shown(mine)} and {_shown(other)}")
    return lines


def _shown(value: Any) -> str:
    return "none" if value is None else clip(str(value), LONGEST)


def _paired_digests(ours: Evaluation, theirs: Evaluation, task: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the digests by which the examples of two evaluations are paired."""
    left, right = _facts(ours, theirs, task)
    if own_templates(ours, theirs):
        return left.targets, right.targets
    return left.prompts, right.prompts


def own_templates(ours: Evaluation, theirs: Evaluation) -> bool:
    """Return whether each model was asked in a chat template of its own, so that no prompt can be the other's."""
    return bool(ours.template and theirs.template and ours.template != theirs.template)


def remarks(ours: Evaluation, theirs: Evaluation) -> list[str]:
    """Return in sentences how two evaluations differ that can be compared all the same."""
    sentences = []
    if own_templates(ours, theirs):
        sentences.append("Each model has its own chat template: examples are paired by document and target.")
    unlike = _differing(ours.precision, theirs.precision, " ")
    if unlike:
        sentences.append(f"The models were not run alike: {'; '.join(unlike)}.")
    if ours.version and theirs.version and ours.version != theirs.version:
        sentences.append(
            f"The files are of {ours.harness} {ours.version} and {theirs.version}, which may score differently."
        )
    return sentences


# Fields and files of other tools


def at(value: Any, *keys: str) -> Any:
    """Return the value under nested keys of mappings; None if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def mapping(value: Any, *keys: str) -> Json:
    """Return the mapping under nested keys; an empty one for anything else."""
    value = at(value, *keys)
    if isinstance(value, Mapping):
        return value
    return {}


def listed(value: Any, *keys: str) -> list[Json]:
    """Return the list of mappings under nested keys; an empty one for anything else."""
    value = at(value, *keys)
    if isinstance(value, list):
        return list(map(mapping, value))
    return []


def text_of(value: Any, *keys: str) -> str | None:
    """Return a text that is not empty, of a bounded length; None for anything else."""
    value = at(value, *keys)
    if isinstance(value, str) and value.strip():
        return clip(value)
    return None


def count_of(value: Any) -> int | None:
    """Return a finite number as a whole one; None for anything else."""
    amount = number(value)
    return None if amount is None else int(amount)


def digest_of(value: Any) -> str:
    """Return the sha256 of a value of JSON in hex."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def read_json(path: Path) -> Json:
    """Return the mapping in a file. Raises DataError."""
    try:
        return mapping(parse_json(read_text(path)))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({clip(str(error), 100)}); expected {EXPECTED}.") from None


def json_lines(path: Path) -> Iterator[tuple[str, Json]]:
    """Yield the place and the content of each line. Raises DataError for a line that is no object of JSON."""
    try:
        for number, row in json_rows(path):
            yield f"{path}:{number}", row
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    except LineError as error:
        why = clip(str(error), 80)
        raise DataError(f"{path}:{error.number}: not a sample in JSON ({why}); it may be truncated.") from None


HIGHER = {
    "acc", "accuracy", "acc_norm", "acc_bytes", "acc_all", "acc_mutual_info", "balanced_accuracy",
    "exact_match", "em", "exact", "match", "includes", "quasi_exact_match", "prefix_exact_match",
    "prompt_level_strict_acc", "prompt_level_loose_acc", "inst_level_strict_acc", "inst_level_loose_acc",
    "f1", "macro_f1", "micro_f1", "precision", "recall", "mcc", "matthews_correlation", "roc_auc", "pass", "mrr",
    "bleu", "sacrebleu", "chrf", "chrf++", "meteor", "bert_score", "bertscore", "bleurt", "likelihood",
    "rouge", "rouge1", "rouge2", "rougel", "rougelsum",
    "choice", "answer", "pattern", "math", "model_graded_qa", "model_graded_fact",
}  # fmt: skip
"""In lower case: of lm-evaluation-harness's registry and tasks, and inspect's scorers."""
LOWER = {
    "perplexity", "ppl", "word_perplexity", "byte_perplexity", "perplexity_per_token", "perplexity_per_seq",
    "bits_per_byte", "loss", "nll", "cross_entropy", "ter", "wer", "cer", "brier_score", "ece", "mse", "mae", "rmse",
}  # fmt: skip
_AT = re.compile(r"(@|_at_)\d+$")
"""The k of pass@k."""


def known_direction(name: str) -> bool | None:
    """Return whether a higher value of a metric is better, by its name; None for a name that is not known."""
    plain = _AT.sub("", name.strip().lower())
    if plain in HIGHER:
        return True
    if plain in LOWER:
        return False
    return None
