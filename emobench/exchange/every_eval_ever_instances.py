"""Per-example results as instances of *Every Eval Ever*: a JSON line for each example of each metric.

The schema wants the texts of input, reference and output. A board that was packed to be published has no texts of data
sets, and a data set's licence may forbid to pass them on. An instance then has empty texts, and as its `sample_hash`
the sha256 of the example's id, which is a digest of its content: the same in every entry that was evaluated on it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import Recorded

NO_TEXTS = "not in this export; sample_hash is the sha256 of the example's id, a digest of its content"
UNIT = "sampling_unit"
"""The key of an instance's metadata with the examples that it was sampled with."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a model read, what a person wrote instead, and what the model wrote: of each seed and sample, in order."""

    input: str
    reference: str | None
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Instances:
    """`rows` are instances. `missing` says of other metrics why they have none."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in self.rows)


def instances(
    entry: Entry,
    examples: Sequence[Mapping[str, Recorded]],
    texts: Mapping[tuple[str, str], Shown],
    evaluation: str,
    model: str,
    schema: str,
) -> Instances:
    """Return the instances of an entry's metrics, from the per-example results of each run.

    An instance's score is the mean over the runs. A metric that is no mean of its examples (MAUVE, a perplexity) has no
    instances.
    """
    found = Instances()
    common = {"schema_version": schema, "evaluation_id": evaluation, "model_id": model}
    for name, metric in entry.metrics.items():
        of_runs = [run[name] for run in examples if name in run]
        if metric.higher_is_better is None or not of_runs:
            continue
        if len(of_runs) < len(examples) or any(one.examples.keys() != of_runs[0].examples.keys() for one in of_runs):
            found.missing[name] = "its runs have other examples"
            continue
        scores = {example: [one.examples[example][0] for one in of_runs] for example in of_runs[0].examples}
        means = {example: math.fsum(values) / len(values) for example, values in scores.items()}
        if not math.isclose(math.fsum(means.values()) / len(means), metric.mean, rel_tol=1e-6, abs_tol=1e-9):
            found.missing[name] = "it is no mean of its examples"
            continue
        task = name.partition("/")[0]
        for example, mean in means.items():
            found.rows.append(
                {
                    **common,
                    "evaluation_name": task,
                    "evaluation_result_id": f"{evaluation}#{name}",
                    "sample_id": example,
                    **_texts(example, texts.get((task, example))),
                    "interaction_type": "single_turn",
                    "answer_attribution": [],
                    "evaluation": {"score": mean, "is_correct": metric.unit == "fraction" and mean == 1.0},
                    "metadata": dict(_metadata(example, of_runs[0], scores[example], (task, example) in texts)),
                }
            )
    return found


def _texts(example: str, shown: Shown | None) -> dict[str, Any]:
    raw, reference = (shown.input, [shown.reference] if shown.reference is not None else []) if shown else ("", [])
    hashed = json.dumps({"raw": raw, "reference": reference}, sort_keys=True) if shown else example
    return {
        "sample_hash": hashlib.sha256(hashed.encode()).hexdigest(),
        "input": {"raw": raw, "reference": reference},
        "output": {"raw": list(shown.outputs) if shown else []},
    }


def _metadata(example: str, of: Recorded, scores: Sequence[float], texts: bool) -> Iterator[tuple[str, str]]:
    if example in of.units:
        yield UNIT, of.units[example]
    if len(scores) > 1:
        yield "scores by seed", " ".join(map(str, scores))
    if not texts:
        yield "texts", NO_TEXTS
