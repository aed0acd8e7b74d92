"""Is one entry better than another, by how much, and are we sure?

Every candidate is compared with one baseline, metric by metric, and on the mean over tasks of a metric that several
tasks share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from emobench.core.errors import ConfigError
from emobench.leaderboard.schema.comparable import changed_rules, differences
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.schema.examples import ExamplesOf
from emobench.leaderboard.schema.labels import MEAN
from emobench.leaderboard.stats.contrasts import Contrast, SeriesOf, SeriesReader, contrasts, primary_of


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`contrasts` are in the order of the candidates; `apart` says of an id why it is not comparable to the baseline.

    `missing` holds, for an id, the metrics that only one side has, and `left_out` entries that were chosen by a query
    and are comparable with no baseline. `replicates` says what is sampled beside the items; where that is bases, the
    entries are rows of several, and `members` holds, for an id, the entry of each base (`across_bases.py`). Where only
    the items are sampled, each entry is one model (`models.py`). `remarks` are sentences about the compared files.
    """

    baseline: Entry
    candidates: tuple[Entry, ...]
    contrasts: tuple[Contrast, ...]
    apart: Mapping[str, tuple[str, ...]]
    missing: Mapping[str, tuple[str, ...]]
    left_out: tuple[Entry, ...] = ()
    replicates: Literal["seeds", "bases", "items"] = "seeds"
    members: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def of(self, candidate: Entry) -> list[Contrast]:
        return [contrast for contrast in self.contrasts if contrast.candidate == candidate.id]


def compare(
    baseline: Entry,
    candidates: Sequence[Entry],
    examples_of: ExamplesOf | None = None,
    *,
    metrics: Sequence[str] | None = None,
    anyway: bool = False,
    series: SeriesOf | None = None,
) -> Comparison:
    """Compare candidates with a baseline on the metrics that both have.

    `metrics` are those to show (by default all but the secondary ones): p values are adjusted for a whole family, so
    that no choice of what is shown changes a verdict. The primary endpoint comes first.
    Raises ConfigError where one is not comparable and `anyway` is not set; with it such a one gets no verdict, but
    where only the model or the recipe differs, two trained models can still be tested on the items that both saw.
    `series` takes the place of `examples_of` for who compares many times: a `SeriesReader` reads each entry once.
    """
    apart = {c.id: tuple(differs) for c in candidates if (differs := differences(c, baseline))}
    if apart and not anyway:
        raise ConfigError(_refusal(baseline, [c for c in candidates if c.id in apart], apart))
    series = series or SeriesReader(examples_of)
    found: list[Contrast] = []
    missing = {}
    for candidate in candidates:
        rows = rows_of(candidate, baseline)
        missing[candidate.id] = tuple(_one_sided(candidate, baseline))
        why = apart.get(candidate.id, ())
        # What differs in the training alone leaves two models that saw the same items.
        within = all(text.startswith(("model", "recipe.")) for text in why)
        made = contrasts(candidate, baseline, rows, series, judged=not why, within=within)
        found += [contrast for contrast in made if _is_shown(contrast, rows[contrast.metric], metrics)]
    return Comparison(
        baseline=baseline,
        candidates=tuple(candidates),
        contrasts=tuple(found),
        apart=apart,
        missing={key: names for key, names in missing.items() if names},
    )


def rows_of(candidate: Entry, baseline: Entry) -> dict[str, list[str]]:
    """Return what two entries are compared on: a metric of both, or a mean over tasks -> its columns."""
    shared = [metric for metric in baseline.metrics if metric in candidate.metrics]
    rows = {metric: [metric] for metric in shared}
    rows |= dict(_means(shared, _one_sided(candidate, baseline), baseline, candidate))
    primary = primary_of(candidate, baseline)
    return {name: rows[name] for name in sorted(rows, key=lambda name: name != primary)}


def _one_sided(candidate: Entry, baseline: Entry) -> list[str]:
    return [metric for metric in dict.fromkeys([*baseline.metrics, *candidate.metrics])
            if metric not in baseline.metrics or metric not in candidate.metrics]  # fmt: skip


def _is_shown(contrast: Contrast, columns: Sequence[str], metrics: Sequence[str] | None) -> bool:
    return not contrast.secondary if metrics is None else all(column in metrics for column in columns)


def comparisons(
    chosen: Sequence[Sequence[Entry]],
    baseline: Sequence[Entry] | None,
    examples_of: ExamplesOf | None = None,
    *,
    metrics: Sequence[str] | None = None,
    anyway: bool = False,
) -> list[Comparison]:
    """Compare what a reader chose, each choice one entry or several, with the last choice or with `baseline`.

    With one baseline and choices of one entry each, all of them are compared, or ConfigError says what differs. Where
    there are several (a query over models, say), each baseline is compared with those chosen that are comparable with
    it; of the others, a single entry that was chosen by itself is refused, and the rest of a query are left out.
    """
    bases = {entry.id: entry for entry in (chosen[-1] if baseline is None else baseline)}
    candidates = {entry.id: entry for entries in chosen for entry in entries if entry.id not in bases}
    if not candidates:
        raise ConfigError(
            f"There is only {' and '.join(title(entry) for entry in bases.values())}, and nothing to compare with it. "
            "Name two or more, such as `emobench compare emo mle`; the last is the baseline, or --baseline names it."
        )
    named = {entries[0].id for entries in chosen if len(entries) == 1}
    series = SeriesReader(examples_of)
    found = []
    for base in bases.values():
        same = [c for c in candidates.values() if anyway or not differences(c, base)]
        if same:
            found.append(compare(base, same, metrics=metrics, anyway=anyway, series=series))
    lonely = [c for c in candidates.values() if not any(c in comparison.candidates for comparison in found)]
    if lonely and (not found or any(c.id in named for c in lonely)):
        return [compare(next(iter(bases.values())), lonely, metrics=metrics)]  # raises what differs
    return [replace(found[0], left_out=tuple(lonely)), *found[1:]]


def _means(
    shared: Sequence[str], one_sided: Sequence[str], baseline: Entry, candidate: Entry
) -> Iterator[tuple[str, list[str]]]:
    """Yield ("mean/<metric>", its columns) for each metric of several tasks that no task of either side lacks."""
    absent = {m.split("/", 1)[1] for m in (*one_sided, *baseline.missing, *candidate.missing)}
    by_name: dict[str, list[str]] = {}
    for metric in shared:
        if not baseline.metrics[metric].of_tasks:
            by_name.setdefault(metric.split("/", 1)[1], []).append(metric)
    for name, columns in by_name.items():
        kinds = {(e.metrics[m].unit, e.metrics[m].higher_is_better) for e in (baseline, candidate) for m in columns}
        if len(columns) > 1 and name not in absent and len(kinds) == 1:
            yield f"{MEAN}/{name}", columns


def _refusal(baseline: Entry, candidates: Sequence[Entry], apart: Mapping[str, Sequence[str]]) -> str:
    lines = [f"Not comparable with {title(baseline)}:"]
    for candidate in candidates:
        found = apart[candidate.id]
        shown = found[: 2 if candidate.suite != baseline.suite else 6]  # another suite has other tasks and data anyway
        more = f"; and {len(found) - len(shown)} more" if len(found) > len(shown) else ""
        lines.append(f"  {title(candidate)} differs in {'; '.join(shown)}{more}.")
    return "\n".join([*lines, "Add --anyway to see them side by side, without a verdict."])


def title(entry: Entry) -> str:
    """Return what an entry is called beside others: its objective, model, suite and id."""
    return f"{entry.objective.label} · {entry.model.name} · {entry.suite} [{entry.id[:6]}]"


def place(entry: Entry) -> str:
    """Return an entry's model and suite, with the rules that differ from the protocols of that name."""
    return " · ".join(filter(None, [entry.model.name, str(entry.suite), changed_rules(entry)]))
