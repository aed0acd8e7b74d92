"""The evaluation of one model, as a result file of any harness has it, and when two of them can be compared.

Each format has a reader that makes an `Evaluation` (`lm_eval.py`, `inspect_log.py`, `every_eval_ever.py`). Files are
compared as they are (`result_files.py`), or become entries of a board (`results_import.py`); both see evaluations.

The files may be a stranger's: sizes are bounded, and no field is trusted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError, MetricError
from emobench.core.reading import LineError, numbered_lines, open_file, parse_json, read_bytes
from emobench.core.settings import file_sha256
from emobench.leaderboard.private_paths import distinct_name
from emobench.leaderboard.run_files import Recorded
from emobench.leaderboard.stats.classical import NORMAL
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

    def summary(self) -> dict[str, Any]:
        """Return the number as the plain summary of an entry's metric."""
        summary: dict[str, Any] = {"mean": self.value, "std": None, "values": [self.value], "n": self.n}
        summary |= {"ci95": None, "ci95_of": None, "ci95_missing": self.without_interval}
        if self.interval is not None:
            summary |= {"ci95": list(self.interval), "ci95_of": self.covers, "ci95_missing": None}
        return summary | {
            "higher_is_better": self.higher_is_better,
            "unit": self.unit,
            "flags": list(self.flags),
        }


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

    `without` says of a number why it has no examples, and `notes` which parts were left out.

    `targets` has a digest of each target alone: models with chat templates of their own, whose digest is `template`,
    are paired by it. `variant` distinguishes models of one name, and `precision` says how the model was run, as far as
    it changes numbers by rounding or by random draws.

    An imported entry also has: `protocols`, the id of each task's protocol; `row`, its model, which is the one that was
    trained if the file says so; `objective`, what that was trained with; the `recipe`; `data`, a digest of each task's
    data; `absent`, why a number is missing; `recorded`, the examples under the names that the file has for them;
    `tool`, `cite` and `interval_source`, of which its citation consists; and `provenance`. `created` is a date, or
    seconds since 1970.
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
    protocols: Mapping[str, str]
    row: Mapping[str, Any]
    data: Mapping[str, str]
    cite: str
    provenance: Mapping[str, Any]
    recorded: Mapping[str, Recorded]
    tool: str = ""
    interval_source: str = ""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    without: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    targets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    template: str | None = None
    windows: Mapping[str, Window] = field(default_factory=dict)
    variant: str = ""
    precision: Mapping[str, str] = field(default_factory=dict)
    objective: str | None = None
    created: str | None = None


def normal_interval(value: float, error: float | None, *, fraction: bool) -> tuple[float, float] | None:
    """Return value ± 1.96 standard errors, a fraction's within [0, 1]; none of an error of 0, which is no certainty."""
    if not error:
        return None
    low, high = value - NORMAL * error, value + NORMAL * error
    return (max(low, 0.0), min(high, 1.0)) if fraction else (low, high)


def entry_facts(
    path: Path,
    made: str,
    harness: str,
    version: str | None,
    rules: Mapping[str, Mapping[str, Any]],
    prompts: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    """Return an Evaluation's `protocols`, `data`, `cite` and `provenance`, for formats that name none of these.

    `made` says what the file is, such as "log of inspect".
    """
    by, packages = harness, {}
    if version is not None:
        by = f"{harness} {version}"
        if version != "unknown":
            packages[harness] = version
    data = {}
    for task, digests in prompts.items():
        if digests:
            data[task] = f"sha256:{digest_of(sorted(digests))} (its examples)"
    return {
        "protocols": {task: f"{harness}@{digest_of(of_task)[:6]}" for task, of_task in rules.items()},
        "data": data,
        "cite": f"{made}, by {by}; {clip(path.name, 100)} (sha256 {file_sha256(path)[:12]})",
        "provenance": {"commit": None, "packages": packages, "hardware": None},
    }


def named_model(path: Path, model: str, variant: str, slashes: int = 1) -> dict[str, str]:
    """Return the model of an entry by the name that a file gives it, which has at most so many `slashes`."""
    name = distinct_name(model, slashes)
    # Files that name no model may be of different ones.
    which = f"#{file_sha256(path)[:8]}" if name == UNNAMED else ""
    return {"name": name.rpartition("/")[2] + variant, "source": name + which + variant}


def by_content(contents: Mapping[str, str]) -> dict[str, str]:
    """Return example -> an id of its content, from example -> its digest; equal documents are numbered in order."""
    seen: Counter[str] = Counter()
    names = {}
    for example, content in contents.items():
        seen[content] += 1
        names[example] = content if seen[content] == 1 else f"{content}#{seen[content]}"
    return names


def renamed(recorded: Recorded, names: Mapping[str, str]) -> Recorded:
    """Return per-example results under other names of the examples."""
    examples = {names[example]: value for example, value in recorded.examples.items()}
    return Recorded(examples, {names[example]: unit for example, unit in recorded.units.items()})


def unpaired(ours: Evaluation, theirs: Evaluation, task: str) -> list[str]:
    """Return in words why a task's examples cannot be compared in two evaluations; empty where they can.

    The examples that both have must be alike; either may lack some, by the rule of `common_examples`. A group's rule is
    for all of its examples, not for those of each member.
    """
    reasons = []
    for member in tasks_below(ours.members, task):
        reasons += [f"{member}: {why}" for why in _unlike(ours, theirs, member)]
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
    below: dict[str, None] = {}
    waiting = list(members.get(group, ()))
    for member in waiting:  # grows while members of members are added
        if member not in below and member != group:
            below[member] = None
            waiting += members.get(member, ())
    return list(below)


def _unlike(ours: Evaluation, theirs: Evaluation, task: str) -> list[str]:
    """Return what two evaluations of a task, without its members, did differently."""
    reasons = []
    left, right = ours.rules.get(task, {}), theirs.rules.get(task, {})
    own = own_templates(ours, theirs)
    for name in dict.fromkeys([*left, *right]):
        of_template = own and name.removeprefix("model argument ") in TEMPLATE_ARGUMENTS
        if not of_template and left.get(name) != right.get(name):
            reasons.append(f"{_shown(name)}: {_shown(left.get(name))} and {_shown(right.get(name))}")
    unknown = Window(None, decides=False)
    mine, others = ours.windows.get(task, unknown), theirs.windows.get(task, unknown)
    if (mine.decides or others.decides) and mine.tokens != others.tokens:
        reasons.append(f"window in tokens: {_shown(mine.tokens)} and {_shown(others.tokens)}")
    mine, others = _paired_digests(ours, theirs, task)
    common = mine.keys() & others.keys()
    changed = sum(mine[example] != others[example] for example in common)
    if changed:
        reasons.append(f"prompts or targets of {changed} of {len(common)} examples differ")
    return reasons


def _paired_digests(ours: Evaluation, theirs: Evaluation, task: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the digests by which the examples of two evaluations are paired."""
    if own_templates(ours, theirs):
        return ours.targets.get(task, {}), theirs.targets.get(task, {})
    return ours.prompts.get(task, {}), theirs.prompts.get(task, {})


def own_templates(ours: Evaluation, theirs: Evaluation) -> bool:
    """Return whether each model was asked in a chat template of its own, so that no prompt can be the other's."""
    return bool(ours.template and theirs.template and ours.template != theirs.template)


def remarks(ours: Evaluation, theirs: Evaluation) -> list[str]:
    """Return in sentences how two evaluations differ that can be compared all the same."""
    sentences = []
    if own_templates(ours, theirs):
        sentences.append("Each model has its own chat template: examples are paired by document and target.")
    unlike = []
    for name in dict.fromkeys([*ours.precision, *theirs.precision]):
        mine, others = ours.precision.get(name), theirs.precision.get(name)
        if mine != others:
            unlike.append(f"{name} {_shown(mine)} and {_shown(others)}")
    if unlike:
        sentences.append(f"The models were not run alike: {'; '.join(unlike)}.")
    if ours.version and theirs.version and ours.version != theirs.version:
        versions = f"{ours.harness} {ours.version} and {theirs.version}"
        sentences.append(f"The files are of {versions}, which may score differently.")
    return sentences


def _shown(value: Any) -> str:
    return "none" if value is None else clip(str(value), LONGEST)


# Fields and files of other tools


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def listed(value: Any) -> list[Mapping[str, Any]]:
    return [mapping(one) for one in value] if isinstance(value, list) else []


def text_of(value: Any) -> str | None:
    """Return a text that is not empty, of a bounded length; None for anything else."""
    return clip(value) if isinstance(value, str) and value.strip() else None


def digest_of(value: Any) -> str:
    """Return the sha256 of a value of JSON in hex."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def read_json(path: Path) -> Mapping[str, Any]:
    """Return the mapping in a file. Raises DataError."""
    try:
        return mapping(parse_json(read_bytes(path).decode("utf-8")))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    except ValueError as error:
        cut = path.suffix == ".json"
        mend = "it may be truncated. Copy it again." if cut else f"expected {EXPECTED}, or their folder."
        raise DataError(f"{path}: no JSON that can be read ({clip(str(error), 100)}); {mend}") from None


def json_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place and the content of each row of a file of JSON Lines, or of one JSON list. Raises DataError."""
    try:
        is_list = read_bytes(path, 1) == b"["
        rows = listed(parse_json(read_bytes(path).decode("utf-8"))) if is_list else []
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise DataError(f"{path}: no list of samples ({clip(str(error), 80)}); it may be truncated.") from None
    if not is_list:
        yield from json_lines(path)
    for place, row in enumerate(rows):
        yield f"{path}: row {place}", row


def json_lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place and the content of each line. Raises DataError for a line that is no JSON."""
    count = 0
    try:
        with open_file(path) as file:
            for count, line in numbered_lines(file):
                yield f"{path}:{count}", mapping(parse_json(line.decode("utf-8")))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    except LineError as error:
        raise DataError(f"{path}:{error.number}: a line of {error}; expected a sample.") from None
    except ValueError as error:
        raise DataError(f"{path}:{count}: no JSON of a sample ({clip(str(error), 80)}); it may be truncated.") from None


HIGHER = {
    *("acc", "accuracy", "acc_norm", "acc_bytes", "acc_all", "acc_mutual_info", "balanced_accuracy"),
    *("exact_match", "em", "exact", "match", "includes", "quasi_exact_match", "prefix_exact_match"),
    *("prompt_level_strict_acc", "prompt_level_loose_acc", "inst_level_strict_acc", "inst_level_loose_acc"),
    *("f1", "macro_f1", "micro_f1", "precision", "recall", "mcc", "matthews_correlation", "roc_auc", "pass", "mrr"),
    *("bleu", "sacrebleu", "chrf", "chrf++", "meteor", "bert_score", "bertscore", "bleurt", "likelihood"),
    *("rouge", "rouge1", "rouge2", "rougel", "rougelsum"),
    *("choice", "answer", "pattern", "math", "model_graded_qa", "model_graded_fact"),
}
"""In lower case: of lm-evaluation-harness's registry and tasks, and inspect's scorers."""
LOWER = {
    *("perplexity", "ppl", "word_perplexity", "byte_perplexity", "perplexity_per_token", "perplexity_per_seq"),
    *("bits_per_byte", "loss", "nll", "cross_entropy", "ter", "wer", "cer", "brier_score", "ece", "mse", "mae", "rmse"),
}
_AT = re.compile(r"(@|_at_)\d+$")
"""The k of pass@k."""


def known_direction(name: str) -> bool | None:
    """Return whether a higher value of a metric is better, by its name; None for a name that is not known."""
    plain = _AT.sub("", name.strip().lower())
    if plain in HIGHER:
        return True
    return False if plain in LOWER else None
